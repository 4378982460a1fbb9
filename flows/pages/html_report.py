"""Write the report of a published dataset as one self-contained HTML file."""

import hashlib

from pairmill.catalog.lake.lake import Lake
from pairmill.flows.api.answer_types import Dataset
from pairmill.flows.api.opened_lake import OpenLake
from pairmill.flows.pages.renderer import cluster_sizes, render_whole, write_page

SECTIONS = {
    "dropped": "Rules, and what they drop", "funnel": "Funnel", "pairs": "Pairs", "extremes": "Best and worst",
    "duplicates": "Duplicates", "clusters": "Clusters", "changes": "Since the version before",
    "breakdown": "By source", "scores": "Other scores", "balance": "Balance", "association": "Association",
    "proof": "What a model learns from it", "texts": "Texts", "quarantine": "Quarantine", "steps": "Work and cost",
    "reproduce": "To make it again",
}  # fmt: skip


def write_report(lake: Lake, dataset: str, version: int, path: str) -> str:
    """Write the report of ``dataset`` at ``version`` to the local file ``path``; return the path.

    The file makes no requests and has no script: images are embedded as small WebPs, charts are inline SVG. It contains
    texts and images of the dataset, so share it only as you would share these. A read-only lake suffices.

    Every query is an aggregate, a bounded sample, or a list of the best few, so the file stays under 10 MB at any size
    of lake. The most expensive reads are one pass over each score's column, a join of the pairs with those of the
    version before, and a row group of at most 64 MB for each of some 700 images.

    Raises PairmillError when the lake has no such dataset.
    """
    found = OpenLake(lake).report_content(f"{dataset}@{version}")
    contents = {"clusters": found["clusters"], "changes": found["before"], "proof": found["proofs"]}
    contents["scores"] = any(by_rule.get("") for by_rule in found["histograms"].values())
    empty = {name for name, content in contents.items() if not content}
    sections = [(name, title) for name, title in SECTIONS.items() if name not in empty]
    laid = {"sections": sections, "cluster_sizes": cluster_sizes(*found["size_sample"])}
    html = render_whole("report.html.j2", **found | laid)
    return write_page(f"{html}<!-- {_seal(html.encode('utf-8', 'replace'), found['dataset'])} -->", path)


def is_report_of(path: str, dataset: Dataset) -> bool:
    """Return whether the file is an undamaged report of this version, not of another lake's version of that name."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return False
    html, mark, end = content.rpartition(b"<!-- ")
    return mark + end == f"<!-- {_seal(html, dataset)} -->".encode()


def _seal(html: bytes, dataset: Dataset) -> str:
    """Return the checksum of a report and the version that it is of."""
    return hashlib.sha256(f"{dataset} {dataset.run_id} {dataset.content_digest}".encode() + html).hexdigest()
