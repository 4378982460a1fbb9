"""Write the report of a published dataset as one self-contained HTML file."""

import hashlib
import json
import os
from collections import defaultdict
from typing import Any

import jinja2
import yaml

from pairmill.catalog.ask import datasets, report
from pairmill.catalog.ask.datasets import Dataset
from pairmill.catalog.ask.histogram import histograms
from pairmill.catalog.ask.token_usage import by_step
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.recipe.parts import RESERVED, Balance
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.write import runs
from pairmill.tasks.out import charts
from pairmill.tasks.out.thumbnails import NONE, thumbnails

PAIRS_SHOWN = 24
_STEPS = {
    "readable": "its pixels decode",
    "exact_duplicate": "not byte for byte one that is kept",
    "no_text": "one of its candidate sentences passes",
    "max_uses": "a sentence is left for it",
    "same_text": "not a text that was there before",
}


def write_report(lake: Lake, dataset: str, version: int, path: str) -> str:
    """Write the report of ``dataset`` at ``version`` to the local file ``path``; return the path.

    The file makes no requests: images are embedded as small JPEGs, charts are inline SVG, and its content policy
    forbids scripts and requests. It contains texts and images of the dataset, so share it only as you would share
    these. Every query is an aggregate or a bounded sample, so the file stays under 3 MB at any size of lake. The most
    expensive reads are one pass over each score's column and over the shards of the 24 images. Needs no write access.

    Raises PairmillError when the lake has no such dataset.
    """
    found = datasets.find(lake, f"{dataset}@{version}")
    html = template("report.html.j2").render(**_content(lake, found))
    html += f"<!-- {_seal(html.encode('utf-8', 'replace'), found)} -->"
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    half = f"{path}.part"
    with open(half, "w", encoding="utf-8", errors="replace") as file:
        file.write(html)
    os.replace(half, path)
    return path


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


def template(name: str) -> jinja2.Template:
    """Load a template of this folder, which escapes all values: texts and addresses come from the web."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(__file__))),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = charts.number
    environment.filters["size"] = _size
    environment.filters["duration"] = _duration
    return environment.get_template(name)


def _content(lake: Lake, dataset: Dataset) -> dict[str, Any]:
    """Query the template's variables."""
    plan = report.plan_of(lake, dataset)
    recipe = plan.recipe
    scorers = [_scorer(row) for row in report.scorers(lake, dataset)]
    n_clusters, sizes = report.cluster_sizes(lake, dataset, plan) if recipe.balance.is_on else (0, [])
    return {
        "dataset": dataset,
        "demo_weights": dataset.demo_weights(lake),
        "recipe": recipe,
        "recipe_yaml": _yaml(dataset.recipe),
        "totals": report.totals(lake, dataset),
        "funnels": _funnels(lake, dataset, plan),
        "charts": [charts.chart(each) for each in histograms(lake, plan, dataset.commit)],
        "clusters": charts.clusters(n_clusters, sizes, report.cap(lake, dataset, recipe)),
        "duplicates": report.duplicates(lake, dataset),
        "sentence_groups": report.sentence_groups(lake, dataset) if recipe.sentence_duplicates else {},
        "generated": report.generated(lake, dataset, plan),
        "pairs": _gallery(lake, dataset, recipe.seed),
        "quarantine": report.quarantine(lake, dataset),
        "steps": report.steps(lake, dataset),
        "usage": by_step(lake, dataset.commit),
        "noted_runs": runs.noted(lake, dataset.created_at),
        "scorers": scorers,
        "libraries": {name: version for each in scorers for name, version in each["libraries"].items()},
    }


def _funnels(lake: Lake, dataset: Dataset, plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """Return the funnel's rows by kind: rule, condition, items in, dropped and left, and percentages of the first."""
    recipe = plan.recipe
    asks = _STEPS | {
        "duplicate": f"the best of its group (phash within {recipe.duplicates.phash} bits, or cosine from "
        f"{recipe.duplicates.cosine:g} on)",
        "balance": _balanced(report.cap(lake, dataset, recipe), recipe.balance),
    }
    asks |= {rule.name: rule.predicate + rule.remark for rule in (*recipe.images, *recipe.sentences)}
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for step in datasets.funnel(lake, dataset):
        rows = found[step.kind]
        total = rows[0]["n_in"] if rows else step.n_in
        left = step.n_in - step.n_dropped
        share = {"left_share": _share(left, total), "dropped_share": _share(step.n_dropped, total)}
        said = asks.get(step.rule, "")
        if (step.kind, step.rule) == ("sentence", "duplicate"):
            said = "the smallest content id of its group: the other sentences of the group fall, their pictures get it"
        rule = {"rule": step.rule, "asks": said, "is_sql": step.rule not in RESERVED}
        rows.append({**rule, "n_in": step.n_in, "n_dropped": step.n_dropped, "left": left, **share})
    return dict(found)


def _balanced(cap: int, asked: Balance) -> str:
    """Format the balance cap's condition for the funnel."""
    solved = f", the smallest cap that makes {asked.target:,} in all" if asked.target else ""
    return f"among the {cap} drawn of its cluster{solved}"


def _share(part: int, total: int) -> float:
    """Return a percentage, 0 for an empty total."""
    return round(100 * part / total, 3) if total else 0.0


def _gallery(lake: Lake, dataset: Dataset, seed: int) -> list[dict[str, Any]]:
    """Sample PAIRS_SHOWN pairs, with thumbnails."""
    pairs = report.gallery(lake, dataset, seed, PAIRS_SHOWN)
    pictures = thumbnails(lake, [(pair["sha256"], pair["shard"]) for pair in pairs if pair["shard"]])
    for pair in pairs:
        texts = [(pair[f"text{n}"], pair[f"similarity{n}"]) for n in (1, 2, 3)]
        pair["texts"] = [(text, similarity) for text, similarity in texts if text]
        pair.update(pictures.get(pair["sha256"], NONE))
        pair["is_link"] = (pair["raw_image_url"] or "").startswith(("https://", "http://"))
    return pairs


def _scorer(row: dict[str, Any]) -> dict[str, Any]:
    """Parse a scorer's settings and libraries."""
    return {**row, "settings": json.loads(row["settings"]), "libraries": json.loads(row["libraries"])}


def _yaml(recipe: str) -> str:
    """Format a recipe's JSON as YAML."""
    return yaml.safe_dump(json.loads(recipe), sort_keys=False, allow_unicode=True, width=100)


def _size(n: float | None) -> str:
    """Format a number of bytes."""
    n = float(n or 0)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if n < 1000 or unit == "TB":
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    raise AssertionError("unreachable")


def _duration(seconds: float | None) -> str:
    """Format a duration in seconds."""
    if not seconds:
        return "–"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
