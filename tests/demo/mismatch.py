"""Measure which planted mismatches a rule on a matching score drops, beside the demo's rule on the cosine.

Run by hand over several seeds: ``python -m tests.demo.mismatch SEED …`` generates each world, curates it by the demo
recipe with the scores of the shipped matching model, and prints one line of figures.
"""

import json
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from infra.demo.prose import Concepts
from infra.demo.sheets import names
from pairmill.catalog.lake.opening import create_or_open
from pairmill.flows.run.demo_models import DEMO_MODELS
from tests.demo.truth import precision_recall
from tests.worlds.generated import generate
from tests.worlds.line import curate

SCORED = {"scores": "{caption_itm: {}, synthetic_itm: {}}", "models.itm": DEMO_MODELS["itm"]}
# Of each kind of text: its table and column, its cosine and the demo's least one (captions have no rule), its itm.
TEXTS = {
    "fused": ("synthetic", "synthetic_text", "synthetic_similarity", 0.48, "synthetic_itm"),
    "caption": ("captions", "text", "caption_similarity", None, "caption_itm"),
}
BY_PARTS = "caption_similarity < 0.45 AND coalesce(match_similarity, -1) < 0.5"
LEAST = 0.5  # of the matching score: "yes" is likelier than "no"


def measure(lake_path: Path, world: Path) -> dict[str, float]:
    """Count the texts of each kind and their mismatches; precision and recall of what the rules drop among them.

    ``_at_recall``: the precision of the matching score at the threshold where its recall is the cosine rule's.
    """
    truth = {row["sha256"]: row for row in pq.read_table(world / "truth/pictures.parquet").to_pylist()}
    concepts, figures = Concepts(names()), {}
    for kind, (table, column, similarity, least, itm) in TEXTS.items():
        newest = 'SELECT sha256, arg_max({}, "commit") AS {} FROM {} GROUP BY sha256'
        parts = [newest.format(column, "text", table), newest.format(similarity, "cosine", similarity),
                 newest.format(f"{itm}_score", "match", itm)]  # fmt: skip
        with create_or_open(lake_path, read_only=True) as lake:
            rows = lake.query(
                f"SELECT sha256, text, cosine, match FROM ({parts[0]}) JOIN ({parts[1]}) USING (sha256) "
                f"JOIN ({parts[2]}) USING (sha256) WHERE cosine IS NOT NULL AND match IS NOT NULL"
            )
        wrong = [concepts.missed(truth[sha], text) for sha, text, *_ in rows]
        figures |= {f"{kind}_texts": len(rows), f"{kind}_mismatched": sum(wrong)}
        if least is not None:
            found = precision_recall([cosine < least for _, _, cosine, _ in rows], wrong)
            figures |= dict(zip((f"{kind}_cosine_precision", f"{kind}_cosine_recall"), found, strict=True))
            scores = [match for *_, match in rows]
            figures[f"{kind}_itm_at_recall"] = max(
                precision
                for each in sorted(set(scores))
                for precision, recall in [precision_recall([match <= each for match in scores], wrong)]
                if recall >= found[1]
            )
        found = precision_recall([match < LEAST for *_, match in rows], wrong)
        figures |= dict(zip((f"{kind}_itm_precision", f"{kind}_itm_recall"), found, strict=True))
    return figures | _by_parts(lake_path, truth, concepts)


def _by_parts(lake_path: Path, truth: dict[str, dict], concepts: Concepts) -> dict[str, float]:
    """Return precision and recall of a rule that drops a fused text whose caption and sentence both fit badly."""
    newest = 'SELECT sha256, arg_max({0}, "commit") AS {0} FROM {1} GROUP BY sha256'
    tables = {
        "synthetic_text": "synthetic",
        "caption_similarity": "caption_similarity",
        "match_similarity": "image_similarity",
    }
    joined = " JOIN ".join(
        f"({newest.format(column, table)}) {table} USING (sha256)" for column, table in tables.items()
    )
    joined = joined.replace(" USING (sha256)", "", 1)
    with create_or_open(lake_path, read_only=True) as lake:
        rows = lake.query(f"SELECT sha256, synthetic_text, {BY_PARTS} FROM {joined}")
    wrong = [concepts.missed(truth[sha], text) for sha, text, _ in rows]
    found = precision_recall([bool(drops) for *_, drops in rows], wrong)
    return dict(zip(("parts_precision", "parts_recall"), found, strict=True))


def main(seeds: list[str]) -> None:
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            world, lake = Path(folder) / "world", Path(folder) / "lake"
            generate(world, int(seed), 640)
            curate(lake, world / "pages", settings=SCORED)
            figures = {name: round(value, 4) for name, value in measure(lake, world).items()}
            print(json.dumps({"seed": int(seed)} | figures), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
