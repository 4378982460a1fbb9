"""Measure a curated demo world against the table of what was planted in it.

Run by hand over several seeds: ``python -m tests.demo.truth SEED …`` generates each world, curates it with the shipped
models and prints one line of figures.
"""

import json
import math
import re
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.parquet as pq

from infra.demo.prose import Concepts
from infra.demo.sheets import names
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from tests.worlds.generated import generate
from tests.worlds.line import curate

DOCUMENTS = 320  # of `make demo`; the floors of test_truth.py are of worlds of this size
REASONS = {
    "truncated": "truncated",
    "empty": "empty",
    "html": "not_an_image",
    "bomb": "bomb",
    "missing": "missing",
}


@dataclass
class Figures:
    """Shares in [0, 1] but for the counts that end in ``_over`` and ``_lost``, which must be 0."""

    quarantine_right: float
    good_in_quarantine: int
    exact_precision: float
    exact_recall: float
    near_precision: float
    near_recall: float
    embedding_precision: float
    embedding_recall: float
    first_sentence: float
    first_sentence_elsewhere: float
    caption: float
    clusters_over: int
    concepts_lost: int
    recall_at_k: float
    entropy_precision: float
    entropy_recall: float
    complexity_precision: float
    complexity_recall: float
    action_precision: float
    action_recall: float
    perplexity_precision: float
    perplexity_recall: float
    sentence_copy_precision: float
    sentence_copy_recall: float
    paraphrase_recall: float
    tag: float
    tag_precision: float
    text_precision: float
    text_recall: float
    mismatch_precision: float
    mismatch_recall: float
    passes_quality: float
    passes_semantics: float
    passes_duplicates: float


def measure(lake_path: Path, world: Path) -> Figures:
    """Figures of the newest demo dataset in the lake against ``world``/truth."""
    pictures = pq.read_table(world / "truth/pictures.parquet").to_pylist()
    described = {row["text"]: row["concept"] for row in pq.read_table(world / "truth/sentences.parquet").to_pylist()}
    with create_or_open(lake_path, read_only=True) as lake:
        return Figures(
            *_quarantine(lake, pictures),
            *_exact(lake, pictures),
            *_edges(lake, pictures),
            *_texts(lake, pictures, described),
            *_balance(lake, pictures),
            lake.query("SELECT recall FROM datasets ORDER BY version DESC LIMIT 1")[0][0],
            *_filters(lake, world),
            *_sentence_copies(lake, world),
            *_tags(lake, pictures),
            *_pair_similarity(lake, pictures),
            *_passes(lake),
        )


def _quarantine(lake: Lake, pictures: list[dict]) -> tuple[float, int]:
    """Share of the planted broken pictures whose reason is right; number of others that are in quarantine."""
    found = dict(lake.query("SELECT item, reason FROM quarantine"))
    right = broken = wronged = 0
    for row in pictures:
        reason = found.get(row["sha256"]) or next(
            (why for item, why in found.items() if row["path"] and item.endswith("/" + row["path"])), None
        )
        if row["kind"] in REASONS:
            broken += 1
            right += reason == REASONS[row["kind"]]
        else:
            wronged += reason is not None
    return right / broken, wronged


def _exact(lake: Lake, pictures: list[dict]) -> tuple[float, float]:
    """Precision: of the pictures that fell as exact duplicates, the share with a twin that did not. Recall: of the
    contents planted several times, the share of which every copy but one fell so.

    What is planted as good passes the item rules; what a later rule says of the twin is that rule's business.
    """
    planted = Counter(row["sha256"] for row in pictures if row["kind"] == "good")
    decided = lake.query(
        "SELECT i.sha256, d.dropped_by = 'exact_duplicate', count(*) FROM decisions d "
        "JOIN images i ON i.image_id = d.item_id WHERE d.kind = 'image' "
        f"AND d.{_NEWEST} AND d.dropped_by IN ('', 'exact_duplicate', 'duplicate', 'no_text', 'pair_similarity', "
        "'whole_text', 'balance', 'max_uses') GROUP BY ALL"
    )
    fell = {sha: n for sha, is_copy, n in decided if is_copy}
    stayed = {sha: n for sha, is_copy, n in decided if not is_copy}
    repeated = {sha: n for sha, n in planted.items() if n > 1}
    right = sum(stayed.get(sha) == 1 and fell.get(sha) == n - 1 for sha, n in repeated.items())
    twinned = sum(n for sha, n in fell.items() if sha in stayed)
    return twinned / max(sum(fell.values()), 1), right / len(repeated)


def _edges(lake: Lake, pictures: list[dict]) -> tuple[float, float, float, float]:
    """Precision of the edges by kind (both ends of one rendering), recall of the planted copies (same group)."""
    by_rendering = {row["rendering"]: row for row in reversed(pictures) if row["rendering"]}
    root = {row["sha256"]: _root(row, by_rendering) for row in pictures if row["rendering"]}
    bare = {row["sha256"] for row in pictures if row["kind"] == "ground"}
    perceptual, semantic = (
        {edge for edge in _edge_set(lake, kind) if not bare.issuperset(edge)}  # two of these may well be alike
        for kind in ("perceptual", "semantic")
    )
    semantic -= perceptual
    groups = dict(lake.query("SELECT sha256, group_id FROM image_groups"))
    scored = {sha for (sha,) in lake.query("SELECT sha256 FROM image_embedding WHERE image_vector IS NOT NULL")}
    recall = {}
    for kinds in (("near",), ("mirrored", "recoloured")):
        copies = [
            (row["sha256"], by_rendering[row["original"]]["sha256"])
            for row in pictures
            if row["copy_kind"] in kinds and {row["sha256"], by_rendering[row["original"]]["sha256"]} <= scored
        ]
        met = sum(a == b or (a in groups and groups.get(a) == groups.get(b)) for a, b in copies)
        recall[kinds] = met / max(len(copies), 1)
    return (
        _precision(perceptual, root),
        recall[("near",)],
        _precision(semantic, root),
        recall[("mirrored", "recoloured")],
    )


def _root(row: dict, by_rendering: dict[str, dict]) -> str:
    """The rendering that a copy of a copy goes back to; an exact copy bears its original's own name."""
    while row["original"] not in ("", row["rendering"]):
        row = by_rendering[row["original"]]
    return row["rendering"]


def _edge_set(lake: Lake, kind: str) -> set[tuple[str, str]]:
    return set(lake.query("SELECT DISTINCT least(a, b), greatest(a, b) FROM duplicate_edges WHERE kind = ?", (kind,)))


def _precision(edges: set[tuple[str, str]], root: dict[str, str]) -> float:
    return sum(root.get(a) == root.get(b) for a, b in edges) / max(len(edges), 1)


def _texts(lake: Lake, pictures: list[dict], described: dict[str, str]) -> tuple[float, float, float]:
    """Share of the kept pictures whose first sentence, and whose caption, is of the right concept."""
    truth = {row["sha256"]: row for row in pictures}
    first: dict[str, list[bool]] = defaultdict(list)
    captions = []
    for sha, text, caption in lake.query(f"SELECT sha256, text1, caption FROM pairs WHERE {_NEWEST}"):
        row = truth[sha]
        if not row["concept"]:
            continue
        if row["described"] in ("own", "elsewhere"):
            first[row["described"]].append(described.get(text, "") == row["concept"])
        captions.append(row["concept"] in (caption or "").lower())
    everything = [hit for hits in first.values() for hit in hits]
    return _share(everything), _share(first["elsewhere"]), _share(captions)


_NEWEST = "version = (SELECT max(version) FROM datasets)"


# What is planted for each filter on text; it is to drop these, and nothing that is a good sentence.
PLANTED = {
    "entropy": ("noise",),
    "complexity": ("no_relation",),
    "action": ("no_action",),
    "perplexity": ("garbled", "easy"),
}
GOOD = ("describes", "distractor")


def _filters(lake: Lake, world: Path) -> list[float]:
    """Precision and recall of each of PLANTED, over the sentences that it met: of its own kinds and good ones."""
    kinds = {row["text"]: row["kind"] for row in pq.read_table(world / "truth/sentences.parquet").to_pylist()}
    tables = ("corpus_entropy", "sentence_structure", "perplexity")
    joined = "".join(f" LEFT JOIN {table} USING (content)" for table in tables)
    shares = []
    for name, planted in PLANTED.items():
        keep = next(rule["keep"] for rule in _recipe(lake)["sentences"] if rule["name"] == name)
        met = Counter(
            (kinds.get(text), falls)
            for text, falls in lake.query(f"SELECT text, NOT ({keep}) FROM sentence_content{joined}")
            if falls is not None
        )
        right, wrong = (sum(met[kind, True] for kind in group) for group in (planted, GOOD))
        shares += [
            right / max(right + wrong, 1),
            right / max(sum(met[k, f] for k in planted for f in (True, False)), 1),
        ]
    return shares


def _sentence_copies(lake: Lake, world: Path) -> tuple[float, float, float]:
    """Precision of the edges between good sentences: planted copies, and what differs in numbers alone, as strings go.
    Share of the near copies and of the paraphrases that are in their original's group."""
    truth = {row["text"]: row for row in pq.read_table(world / "truth/sentences.parquet").to_pylist()}
    text = dict(lake.query("SELECT content, text FROM sentence_content"))
    root = {name: re.sub(r"\d+", "0", row["original"] or name) for name, row in truth.items() if row["kind"] in GOOD}
    edges = [(text[a], text[b]) for a, b in lake.query("SELECT a, b FROM sentence_edges WHERE a IS NOT NULL")]
    right = [root[a] == root[b] for a, b in edges if a in root and b in root]
    group = {text[content]: group for content, group in lake.query("SELECT content, group_id FROM sentence_groups")}
    found = {
        kind: [
            group.get(name, "") == group.get(row["original"])
            for name, row in truth.items()
            if row["copy_kind"] == kind and {name, row["original"]} <= set(text.values())
        ]
        for kind in ("near", "paraphrase")
    }
    return _share(right), _share(found["near"]), _share(found["paraphrase"])


def _tags(lake: Lake, pictures: list[dict]) -> tuple[float, float]:
    """Share of the tagged pictures whose first tag is their concept, and of all tags that are right."""
    concept = {row["sha256"]: row["concept"] for row in pictures if row["concept"]}
    tagged = [(concept[sha], tags) for sha, tags in lake.query("SELECT sha256, tags FROM tags") if sha in concept]
    first = [bool(tags) and tags[0] == name for name, tags in tagged]
    return _share(first), _share([tag == name for name, tags in tagged for tag in tags])


def _pair_similarity(lake: Lake, pictures: list[dict]) -> tuple[float, ...]:
    """Precision and recall of the two ends of the recipe's rule, over the pictures that have a fused text: above it
    pictures of text, below it pairs that do not match."""
    truth, concepts = {row["sha256"]: row for row in pictures}, Concepts(names())
    keep = next(rule["keep"] for rule in _recipe(lake)["images"] if rule["name"] == "pair_similarity")
    low, high = (float(bound) for bound in re.findall(r"\d+\.\d+", keep))
    scored = lake.query(
        "SELECT t.sha256, t.text, s.value FROM "
        '(SELECT sha256, arg_max(synthetic_text, "commit") AS text FROM synthetic GROUP BY sha256) t JOIN '
        '(SELECT sha256, arg_max(synthetic_similarity, "commit") AS value FROM synthetic_similarity GROUP BY sha256) s '
        "USING (sha256) WHERE s.value IS NOT NULL"
    )
    rows = [(truth[sha], text, value) for sha, text, value in scored]
    above, below = [value > high for *_, value in rows], [value < low for *_, value in rows]
    mismatched = [concepts.missed(row, text) for row, text, _ in rows]
    return *precision_recall(above, [row["kind"] == "text" for row, *_ in rows]), *precision_recall(below, mismatched)


def precision_recall(found: list[bool], planted: list[bool]) -> tuple[float, float]:
    right = sum(a and b for a, b in zip(found, planted, strict=True))
    return right / max(sum(found), 1), right / max(sum(planted), 1)


# The sentence rules of each of RealSyn's steps.
STEPS = (("length", "no_url", "no_emoji", "complexity", "action"), ("entropy", "perplexity"), ("duplicate",))


def _passes(lake: Lake) -> list[float]:
    """Share of the sentences that pass the rules of each of STEPS, of those that reach each rule."""
    sql = f"SELECT rule, 1 - n_dropped / n_in FROM funnel WHERE kind = 'sentence' AND {_NEWEST}"
    passing = dict(lake.query(sql))
    return [math.prod(passing[rule] for rule in rules) for rules in STEPS]


def _recipe(lake: Lake) -> dict:
    return json.loads(lake.query("SELECT recipe FROM datasets ORDER BY version DESC LIMIT 1")[0][0])


def _share(hits: list[bool]) -> float:
    return sum(hits) / max(len(hits), 1)


def _balance(lake: Lake, pictures: list[dict]) -> tuple[int, int]:
    """Clusters of the dataset over the cap, and concepts that balance alone removed."""
    concept = {row["sha256"]: row["concept"] for row in pictures}
    cap = _recipe(lake)["balance"]["cap"]
    over = lake.query(
        f"SELECT count(*) FROM (SELECT 1 FROM pairs WHERE {_NEWEST} GROUP BY cluster HAVING count(*) > {cap})"
    )
    before = lake.query(
        "SELECT DISTINCT i.sha256 FROM decisions d JOIN images i ON i.image_id = d.item_id "
        f"WHERE d.dropped_by IN ('', 'balance', 'max_uses') AND d.{_NEWEST}"
    )
    after = lake.query(f"SELECT sha256 FROM pairs WHERE {_NEWEST}")
    lost = {concept[sha] for (sha,) in before} - {concept[sha] for (sha,) in after} - {""}
    return over[0][0], len(lost)


def main(seeds: list[str]) -> None:
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            world = Path(folder) / "world"
            generate(world, int(seed), DOCUMENTS)
            curate(Path(folder) / "lake", world / "pages")
            figures = asdict(measure(Path(folder) / "lake", world))
            print(
                json.dumps({"seed": int(seed)} | {name: round(value, 4) for name, value in figures.items()}), flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1:])
