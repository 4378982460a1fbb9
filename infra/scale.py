"""Compute the tables of infra/SCALE.md from the measured rates: ``python infra/scale.py``; ``--check`` changes nothing.

Counts are RealSyn's (arXiv 2502.12513). Rates are read from infra/bench/results, so that the tables stay true. Every
other number is an assumption, in ASSUMED with its reason.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT.parent))

from infra.generated import rewrite  # noqa: E402
from infra.waves import KEPT  # noqa: E402

START, END = "<!-- tables: made by infra/scale.py -->", "<!-- end of tables -->"
DOCUMENTS, IMAGES, SENTENCES = 118e6, 336e6, 2.13e9
# Sentences left after each of RealSyn's filters (quality, semantics, duplicates), and pictures to be captioned.
GOOD, MEANINGFUL, DISTINCT, DESCRIBED = 1.82e9, 1.16e9, 0.84e9, 198e6
RECIPES = {"15m": (15e6, 20), "30m": (30e6, 35), "100m": (100e6, 180)}  # pairs, cap
CLUSTERS = {"sentence": 2e6, "image": 1e6, "balance": 1e6}
DIMENSION = 1024  # EVA02-E-14-plus
DOCUMENTS_A_SHARD = 1000
ASSIGNED = 131_072  # vectors an index file
FEWEST, MERGED = 64, 64  # files that are merged into one, and merged files of an index
HOUR = 3600
A_WAVE = ("ask for a wave's texts", "list a wave's captions", "list a wave's fused texts", "cut behind a wave")
NEW_PAGES = "cut of 1 % of new pages"
GPU_RESULTS = ROOT / "bench" / "results" / "gpu.json"
# Number of texts that a wave requests in a cluster that lacks r pictures, by the policies of infra/waves.py.
ASKED_FOR = {
    "none": "r: nothing in excess",
    "overall": "r / pass rate of all",
    "cluster": "r / the cluster's rate",
    "doubling": "twice that, each wave from the third",
}


@dataclass(frozen=True)
class Assumed:
    """An assumed number and the reason for it."""

    value: float
    why: str


ASSUMED = {
    "kilobytes a picture": Assumed(100, "web photographs of 0.7 megapixels, as the benches make them"),
    "share of pictures that pass the cheap rules": Assumed(0.6, "100 px, 3:1, one of each exact copy; no figure known"),
    "TFLOP/s of EVA02-E-14-plus on an H200": Assumed(
        540,
        "its operations, timed one by one at the card's measured ceilings: not yet measured on a card. "
        "That sum gives ViT-L-14 2,376 pictures/s, 2,327 were measured",
    ),
    "TFLOP of a picture, ViT-L-14": Assumed(0.162, "304 million parameters, 257 tokens, attention included"),
    "TFLOP of a picture, EVA02-E-14-plus": Assumed(2.24, "4.35 billion parameters x 257 tokens x 2"),
    "TFLOP of a sentence": Assumed(0.028, "0.7 billion parameters x 20 tokens, cut at the batch's longest, x 2"),
    "TFLOP of a sentence, GPT-2 large": Assumed(0.039, "0.77 billion parameters x 25 tokens x 2"),
    "ms to fit a decoded picture to a CLIP": Assumed(0.1, "beside 2.8 ms to decode it and 1.2 for its pixel scores"),
    "captions/s on an H200": Assumed(
        196,
        "SmolVLM2 by the cost model: 142 were measured, before patches were laid out, slots were kept full and keys "
        "were read over true lengths",
    ),
    "fused texts/s on an H200": Assumed(
        380,
        "1.5B by the cost model: 275 were measured, before slots were kept full and keys were read over true lengths",
    ),
    "concentration of pass rates": Assumed(10, "how alike the pictures of a cluster are judged; see the waves below"),
    "ms to open a file and read its footer": Assumed(5, "local disk, cached; S3 takes 30 to 100"),
    "ms to commit a file": Assumed(6, "SQLite, in transactions of many files"),
}


def assumed(name: str) -> float:
    """Return an assumed number."""
    return ASSUMED[name].value


def rate(bench: str, what: str, unit: str) -> float:
    """Return the figure of the first row of ``bench`` in ``unit`` whose name begins with ``what``.

    Raises:
        SystemExit: The bench has no result or no such row.
    """
    path = ROOT / "bench" / "results" / f"{bench}.json"
    if not path.exists():
        raise SystemExit(f"{path.name} is missing; run python -m infra.bench.{bench}")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    found = [row["ours"] for row in rows if row["what"].startswith(what) and row["unit"] == unit]
    if not found:
        raise SystemExit(f"{path.name} has no row '{what}' in {unit}")
    return found[0]


@dataclass(frozen=True)
class Stage:
    """Cost of one stage: ``rows``, ``terabytes`` read and written, hours of one core and of one GPU, GB a worker."""

    name: str
    rows: float
    terabytes: float
    cpu_hours: float
    gpu_hours: float
    worker_gb: float
    files: float
    shuffle: str


def stages() -> list[Stage]:
    """Return the stages that process the whole input, whatever the recipe keeps of it."""
    eligible, sentences = IMAGES * assumed("share of pictures that pass the cheap rules"), MEANINGFUL
    searched = (
        sentences + 2 * eligible
    )  # sentences and pictures in their own clusters, and pictures in those of sentences
    vector = 2 * DIMENSION / 1e12
    shards = DOCUMENTS / DOCUMENTS_A_SHARD
    pictures_tb = IMAGES * assumed("kilobytes a picture") / 1e9
    ingest = IMAGES / rate("ingest", "webdataset, start taken off", "img/CPU s") / HOUR
    scored = eligible / rate("image_pass", "image pass in the process pool", "img/CPU s") / HOUR
    counted, entropy = (
        rate("sentences", f"sentences to {what}", "sentences/CPU s") for what in ("counts", "entropy by")
    )
    split = SENTENCES / rate("sentences", "texts to sentences", "sentences/CPU s") / HOUR
    return [
        Stage("ingest (a copy of every picture)", DOCUMENTS, 2 * pictures_tb, ingest + split, 0, 1.2, 6 * shards, "-"),
        Stage("pixel scores, hash", eligible, pictures_tb, scored, 0, 0.6, 2 * shards, "-"),
        Stage("CLIP vectors of pictures, in the same pass", eligible, eligible * vector,
              eligible * assumed("ms to fit a decoded picture to a CLIP") / 1e3 / HOUR,
              gpu_hours(eligible, "TFLOP of a picture, EVA02-E-14-plus",
                        assumed("TFLOP/s of EVA02-E-14-plus on an H200")), 12, shards, "-"),
        Stage("sentence flags", SENTENCES, SENTENCES * 150 / 1e12,
              SENTENCES / rate("sentences", "sentences to flags", "sentences/CPU s") / HOUR, 0, 0.5, shards, "-"),
        Stage("words counted, corpus entropy", SENTENCES, 2 * SENTENCES * 150 / 1e12,
              SENTENCES * (1 / counted + 1 / entropy) / HOUR, 0, 1.0, 2 * shards, "words merged, 16 bytes each"),
        Stage("parse (complexity, action)", GOOD, GOOD * 150 / 1e12,
              GOOD / rate("sentences", "sentences to complexity", "sentences/CPU s") / HOUR, 0, 1.0, shards, "-"),
        Stage("perplexity, GPT-2 large", GOOD, GOOD * 150 / 1e12, 0,
              gpu_hours(GOOD, "TFLOP of a sentence, GPT-2 large", vit_rate()), 5, shards, "-"),
        Stage("near-equal sentences", SENTENCES, 17 * 8 * SENTENCES / 1e12,
              SENTENCES / rate("near_sentences", "near-equal pairs of 270", "sentences/CPU s") / HOUR, 0, 35, shards,
              "16 bands sorted"),
        Stage("CLIP vectors of sentences", sentences, sentences * vector, 0,
              gpu_hours(sentences, "TFLOP of a sentence", vit_rate()), 4, shards, "-"),
        Stage("train centroids", 64 * sum(CLUSTERS.values()), 64 * CLUSTERS["sentence"] * vector, training(), 0,
              training_gb(), len(CLUSTERS), "-"),
        Stage("assign to clusters", searched + eligible, (2 * searched + eligible) * vector,
              assigning(searched + eligible), 0, 13, (2 * searched + eligible) / ASSIGNED, "sorted inside each file"),
        Stage("duplicates", eligible, eligible * vector, duplicates(eligible), 0, 126 * eligible / 1e9, 10, "-"),
        Stage("associate", eligible, 3 * (sentences + eligible) * vector, associating(eligible, sentences),
              0, 2, 2 * ranges(sentences),
              f"merged by {ranges(sentences):,.0f} ranges, {opens(eligible, sentences) / 1e6:.2f} M opens"),
    ]  # fmt: skip


def gpu_hours(n: float, each: str, rate: float) -> float:
    """Return the hours of ``n`` operations of the assumed TFLOP on an H200 that does ``rate`` TFLOP/s."""
    return n * assumed(each) / rate / HOUR


def on_a_card(row: str, what: str, of: str = "value") -> float:
    """Return a measure of a row of the GPU benches, taken on an H200; ``of`` 'bound': its bound.

    Raises:
        SystemExit: The row was not measured, or on another card.
    """
    found = json.loads(GPU_RESULTS.read_text(encoding="utf-8")).get(row, {})
    if "H200" not in found.get("device", ""):
        raise SystemExit(f"{GPU_RESULTS.name} has no row '{row}' of an H200; run python -m infra.bench.gpu_all there")
    return next(measure[of] for measure in found["measures"] if measure["what"] == what)


def vit_rate() -> float:
    """Return the TFLOP/s of ViT-L-14 alone on an H200; GPT-2 large and EVA's text tower are assumed to have it too."""
    return on_a_card("clip_stage", "ViT-L-14 from JPEG bytes", "bound") * assumed("TFLOP of a picture, ViT-L-14")


def assigning(n: float) -> float:
    """Return the core-hours of assigning ``n`` vectors, by comparing with the heads and the centroids of 16 groups.

    The rate is the measured one of products (2,048 centroids of 512).
    """
    products = rate("cluster", "assign to 2048", "vectors/CPU s") * 2048 * 512
    heads = CLUSTERS["sentence"] ** 0.5
    return n * (1 + 16) * heads * DIMENSION / products / HOUR


def training() -> float:
    """Return the core-hours of training centroids, from 64 vectors a centroid.

    Training has two levels: 20 steps inside each group, then two steps over all groups by routing.
    """
    products = rate("cluster", "assign to 2048", "vectors/CPU s") * 2048 * 512
    hours = 0.0
    for k in CLUSTERS.values():
        hours += 64 * k * 20 * k**0.5 * DIMENSION / products / HOUR + 2 * assigning(64 * k)
    return hours


def training_gb() -> float:
    """Return the GB of the centroids and their sums (fp32, fp64) over all groups."""
    return CLUSTERS["sentence"] * DIMENSION * (4 + 8 + 4) / 1e9


def duplicates(n: float) -> float:
    """Return the core-hours of the duplicate search among ``n`` pictures.

    Hashes grow with the measured exponent from 1M on. Each vector is compared with two clusters of n / K vectors.
    """
    hashes = rate("duplicates", "edges of 1000000 hashes", "hashes/CPU s")
    grown = (n / 1e6) ** exponent_of("edges of 1000000 hashes") * 1e6 / hashes / HOUR
    products = rate("cluster", "assign to 2048", "vectors/CPU s") * 2048 * 512
    return grown + n * 2 * n / CLUSTERS["image"] * DIMENSION / products / HOUR


def exponent_of(what: str) -> float:
    """Return the measured exponent of a row of the duplicates bench."""
    rows = json.loads((ROOT / "bench/results/duplicates.json").read_text(encoding="utf-8"))["rows"]
    note = next(row["note"] for row in rows if row["what"].startswith(what))
    return float(note.removeprefix("exponent ").split(",")[0].split(";")[0])


def associating(eligible: float, sentences: float) -> float:
    """Return the core-hours of associating by one probe: products with one cluster's sentences, merging, opening files.

    Products and merges take the measured rates.
    """
    products = rate("cluster", "assign to 2048", "vectors/CPU s") * 2048 * 512
    search = eligible * sentences / CLUSTERS["sentence"] * DIMENSION / products / HOUR
    merging = (eligible + sentences) / rate("index_files", "an index of 1,024", "vectors/CPU s") / HOUR
    opened = opens(eligible, sentences) + (eligible + sentences) / ASSIGNED
    return search + merging + opened * assumed("ms to open a file and read its footer") / 1e3 / HOUR


def opens(eligible: float, sentences: float) -> float:
    """Count the file opens of one search: each range opens at most MERGED merged files of each index."""
    return ranges(sentences) * sum(min(n / ASSIGNED // FEWEST, MERGED) for n in (eligible, sentences))


def ranges(sentences: float) -> float:
    """Return the number of ranges of clusters, 125,000 sentences each."""
    return sentences / 125_000


def stage_table() -> str:
    """Return the table of the stages' costs in Markdown."""
    lines = ["| stage | rows | TB in and out | CPU-hours | H200-hours | GB a worker | files | shuffle |",
             "|---|--:|--:|--:|--:|--:|--:|---|"]  # fmt: skip
    for s in stages():
        lines.append(
            f"| {s.name} | {_n(s.rows)} | {s.terabytes:,.1f} | {s.cpu_hours:,.1f} | {s.gpu_hours:,.0f} | "
            f"{s.worker_gb:,.1f} | {_n(s.files)} | {s.shuffle} |"
        )
    return "\n".join(lines)


def passes_table() -> str:
    """Return the table of sentences that pass each step's text rules: in the paper, and in the demo worlds (mean)."""
    seeds = json.loads((ROOT / "bench/results/demo_truth.json").read_text(encoding="utf-8"))["seeds"]
    papers = {
        "quality: length, addresses, emoji, complexity, action": ("passes_quality", GOOD / SENTENCES),
        "semantics: entropy, perplexity": ("passes_semantics", MEANINGFUL / GOOD),
        "duplicates": ("passes_duplicates", DISTINCT / MEANINGFUL),
    }
    lines = ["| sentences that pass | RealSyn | demo worlds |", "|---|--:|--:|"]
    for name, (figure, share) in papers.items():
        lines.append(f"| {name} | {share:.3f} | {sum(seed[figure] for seed in seeds) / len(seeds):.3f} |")
    return "\n".join(lines)


def retrieval() -> str:
    """Compare our retrieval with the paper's figure, which is one sum for all its parts."""
    found = {stage.name: stage.cpu_hours for stage in stages()}
    ours = [found[name] for name in ("train centroids", "assign to clusters", "associate")]
    return (
        f"RealSyn gives its hierarchical retrieval, {_n(DESCRIBED)} pictures by {_n(DISTINCT)} sentences, as 40 "
        f"GPU-hours on 8 A100, and says 10,000 and more for exact search. Here centroids and assignment (duplicates' "
        f"and balance's among them) and search take "
        f"{ours[0]:,.0f} + {ours[1]:,.0f} + {ours[2]:,.0f} = {sum(ours):,.0f} CPU-hours and no GPU."
    )


def recipe_table() -> str:
    """Format the Markdown table of each recipe: pictures captioned, CPU- and GPU-hours, days on 64 cores and 8 H200.

    What feeds a GPU has CPU-hours but no days: feeders work beside it.
    """
    found = stages()
    cpu, gpu = sum(s.cpu_hours for s in found), sum(s.gpu_hours for s in found)
    files, beside = sum(s.files for s in found), sum(s.cpu_hours for s in found if s.gpu_hours)
    lines = ["| recipe | captioned | H200-hours of captions (model) | of fused texts (model) | hours of one process | "
             "all CPU-hours | all H200-hours | days on 64 cores and 8 H200 |",
             "|---|--:|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for name, (pairs, cap) in RECIPES.items():
        n, waves = asked(pairs, cap)
        captions, fused = (n / assumed(f"{what}/s on an H200") / HOUR for what in ("captions", "fused texts"))
        fed = n / rate("feeders", "pictures for a captioner, 1 thread, the device's thread idle", "img/s") / HOUR
        fed += 8 * n / on_a_card("run_fuser", "fused texts, prepared alone") / HOUR
        alone, whole = in_one_process(files, waves), gpu + captions + fused
        lines.append(
            f"| `{name}` | {_n(n)} | {captions:,.0f} | {fused:,.0f} | {alone:,.1f} | {cpu + fed:,.0f} | {whole:,.0f} | "
            f"{((cpu - beside) / 64 + whole / 8 + alone) / 24:,.1f} |"
        )
    return "\n".join(lines)


def in_one_process(files: float, waves: int) -> float:
    """Return the hours of the flow's process: commits, two cuts with facts, each wave's lists and cut, publishing."""
    waiting = files * assumed("ms to commit a file") / 1e3
    known = {name: seconds[0] for name, _, _, *seconds in catalog_seconds()}
    return (waiting + 2 * known["first facts"] + waves * sum(known[name] for name in A_WAVE) + known["publish"]) / HOUR


def simulated() -> dict[str, Any]:
    """Return the results of infra/waves.py."""
    path = ROOT / "bench/results/waves.json"
    if not path.exists():
        raise SystemExit(f"{path.name} is missing; run python -m infra.waves")
    return json.loads(path.read_text(encoding="utf-8"))


def asked(pairs: float, cap: int) -> tuple[float, int]:
    """Return the pictures that get a generated text until ``pairs`` are kept, and the waves, by the fewest waves."""
    policy = ("doubling", cap, assumed("concentration of pass rates"))
    row = next(row for row in simulated()["rows"] if (row["policy"], row["cap"], row["concentration"]) == policy)
    return pairs * row["share"] * DESCRIBED / row["kept"], row["waves"]


def waves_table() -> str:
    """Return the table of texts requested (share of pictures) and waves, by cap, policy and concentration."""
    made = simulated()
    found = {(row["cap"], row["policy"], row["concentration"]): row for row in made["rows"]}
    spread = sorted({key[2] for key in found})
    heads = "".join(f" Beta({k}): share | waves | beyond |" for k in spread)
    lines = [f"| cap | asked for |{heads}", "|--:|---|" + "--:|--:|--:|" * len(spread)]
    for cap, policy in dict.fromkeys(key[:2] for key in found):
        each = [found[cap, policy, k] for k in spread]
        cells = "".join(f" {r['share']:.3f} | {r['waves']} | {100 * r['beyond']:.1f} % |" for r in each)
        lines.append(f"| {cap} | {ASKED_FOR[policy]} |{cells}")
    return "\n".join([fit_line(made["fit"]), "", *lines])


def fit_line(fit: dict[str, float]) -> str:
    """Describe how near one distribution of sizes comes to RealSyn's kept counts, and why none can be nearer."""
    caps = sorted(KEPT)
    told = ", ".join(f"{fit[str(cap)] / 1e6:.1f} M at {cap} ({KEPT[cap] / 1e6:.2f})" for cap in caps)
    least = caps[0] / caps[1] * KEPT[caps[1]]
    return (
        f"{_n(CLUSTERS['image'])} clusters, a share of {fit['empty']:g} empty and the others lognormal with sigma "
        f"{fit['sigma']:g}, keep {told}; in brackets RealSyn's. No clustering gives these three: of n pictures a cap "
        f"of {caps[0]} keeps at least {caps[0]}/{caps[1]} of what {caps[1]} keeps, so {KEPT[caps[1]] / 1e6:.2f} M at "
        f"{caps[1]} force {least / 1e6:.1f} M at {caps[0]}, where the paper has {KEPT[caps[0]] / 1e6:.2f}."
    )


def catalog_seconds() -> Iterator[tuple[str, float, float, float, float]]:
    """Yield name, measured images and seconds, and the seconds in proportion at IMAGES and 1e9 images.

    DuckDB's joins and sorts spill, so time grows in proportion.
    """
    for row in json.loads((ROOT / "bench/results/catalog_30m.json").read_text(encoding="utf-8"))["rows"]:
        name, _, size = row["what"].rpartition(", ")
        if size.endswith(" images") and name in ("first facts", *A_WAVE, "re-cut, another cap", "publish", NEW_PAGES):
            n = float(size.removesuffix(" images"))
            yield name, n, row["ours"], row["ours"] * IMAGES / n, row["ours"] * 1e9 / n


def catalog_table() -> str:
    """Return the table of catalog seconds."""
    lines = [
        "| catalog of `30m` | measured at | s | at 336 M images, in proportion | at 1 B |",
        "|---|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {name} | {_n(n)} | {seen:,.1f} | {full:,.0f} | {more:,.0f} |"
        for name, n, seen, full, more in catalog_seconds()
    ]
    return "\n".join(lines)


def whole() -> str:
    """Return all tables in Markdown."""
    parts = ["| assumed, not measured | value | why |", "|---|--:|---|"]
    parts += [f"| {name} | {each.value:g} | {each.why} |" for name, each in ASSUMED.items()]
    tables = (passes_table(), stage_table(), retrieval(), recipe_table(), waves_table(), catalog_table())
    return "\n".join([*parts, *(line for table in tables for line in ("", table))])


def _n(value: float) -> str:
    """Format a number with three digits and B, M or k."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:,.3g} {letter}"
    return f"{value:,.0f}"


if __name__ == "__main__":
    raise SystemExit(rewrite(ROOT / "SCALE.md", START, END, whole(), sys.argv[1:]))
