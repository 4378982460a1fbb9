"""Simulate captioners and a fuser with a hidden table of answers, and compile the plans that request them."""

import hashlib
import random
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from pairmill.catalog.cut.late_cut import judge
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.chosen_captions import wave_of_captioner
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from tests.reference import cut as slow
from tests.worlds import random_lake as rules

SCORERS = rules.SCORERS | {
    "captions": "cap", "caption_similarity": "cs", "synthetic": "syn", "synthetic_similarity": "ss",
}  # fmt: skip
LATE = {
    "worded": "caption not like 'caption 1 %7'",
    "whole": "caption_status = 'ok'",
    "fits": "caption_similarity >= 0.2",
    "pair": "synthetic_similarity between 0.3 and 0.7",
}


# (number of captioners, how one caption is chosen for an image)
CHOICES = (
    (1, {}),
    (2, {}),
    (2, {"choose": "best"}),
    (3, {"choose": "best"}),
    (2, {"choose": "mixture"}),
    (3, {"choose": "mixture"}),
)


def plan(late: dict[str, str], n_captioners: int = 1, captions: dict[str, str] = {}, **balance: int) -> Plan:  # noqa: B006
    """Compile a plan with these rules on generated texts and so many captioners."""
    captioners = [{"name": f"c{place}"} for place in range(n_captioners)]
    content = rules.plan().recipe.model_dump(mode="json") | {
        "captioners": captioners, "captions": captions, "fuse": {}, "balance": balance,
        "models": {"clip": "open_clip:A/b", "captioner": "hf:a"},
    }  # fmt: skip
    content["images"] = [*content["images"], *({"name": name, "keep": keep} for name, keep in late.items())]
    others = {f"{table} c{place}": f"{scorer} {place}" for place in range(1, n_captioners)
              for table, scorer in (("captions", "cap"), ("caption_similarity", "cs"))}  # fmt: skip
    return compile_plan(Recipe.model_validate(content), SCORERS | others)


class Generator:
    """A simulated generator: writes the answers of a hidden table for the images that a wave requests."""

    def __init__(self, lake: Lake, plan: Plan, images: list[slow.Image], seed: int):
        self.lake, self.plan, self.random = lake, plan, random.Random(seed)
        self.commit = 10
        shas = sorted({image.sha256 for image in images})
        hidden = random.Random(seed)
        # Images of one cluster pass at a common rate, so that the overall rate is misleading.
        cluster = {image.sha256: image.cluster for image in images}
        good = {sha: random.Random(f"{seed} {cluster[sha]}").choice((0.1, 0.5, 1.0)) for sha in shas}
        self.pair = {sha: 0.5 if hidden.random() < good[sha] else 0.9 for sha in shas}
        places = range(len(plan.recipe.captioners))
        self.status = [{sha: hidden.choices(("ok", "empty"), (0.8, 0.2))[0] for sha in shas} for _ in places]
        # Few values, so that ties are common.
        self.fits = [{sha: hidden.choices((0.5, 0.6, 0.1), (0.6, 0.3, 0.1))[0] for sha in shas} for _ in places]

    def late(self, sha: str, late: dict[str, str]) -> str:
        """Return the first rule on generated texts that drops the image, '' if none does."""
        by = self.chosen(sha)
        falls = {
            "worded": self.text(by, sha).startswith("caption 1") and sha.endswith("7"),
            "whole": self.status[by][sha] != "ok",
            "fits": self.fits[by][sha] < 0.2,
            "pair": self.pair[sha] > 0.7,
        }
        return next((name for name in late if falls[name]), "")

    def chosen(self, sha: str) -> int:
        """Return the index of the captioner that provides an image's caption: the slow twin of the choice in SQL."""
        recipe = self.plan.recipe
        if recipe.captions.choose == "mixture":
            return drawn(sha, recipe.seed, [each.name for each in recipe.captioners])
        good = [place for place, status in enumerate(self.status) if status[sha] == "ok"]
        if recipe.captions.choose == "first" or not good:
            return 0
        return min(good, key=lambda place: (-self.fits[place][sha], place))

    def text(self, place: int, sha: str) -> str:
        """Return a captioner's text for an image."""
        return f"caption {place} {sha}" if self.status[place][sha] == "ok" else ""

    def stages(self) -> list[Callable[[list], None]]:
        """List the steps of a wave in order; each takes the requested rows (n, sha256, sentence)."""
        captions = [partial(self.caption, place) for place in range(len(self.status))]
        similarities = [partial(self.compare, place) for place in self.plan.compared_captioners]
        return [*captions, *similarities, self.fuse, self.compare_fused]

    def work(self, stages: int = 100, share: float = 1.0) -> None:
        """Run the first ``stages`` steps for a ``share`` of the images that the wave requests."""
        asked = self.lake.query("SELECT n, sha256, sentence FROM wave_asked ORDER BY sha256")
        asked = [row for row in asked if self.random.random() < share]
        for stage in self.stages()[:stages]:
            stage(asked)

    def caption(self, place: int, asked: list) -> None:
        """Write captions for the requested images that the plan assigns to this captioner."""
        of_it = {sha for (sha,) in self.lake.query(f"SELECT sha256 FROM {wave_of_captioner(self.plan, place)}")}
        if self.plan.recipe.captions.choose == "mixture":
            everyone = self.lake.query("SELECT sha256 FROM wave_asked")
            assert of_it == {sha for (sha,) in everyone if self.chosen(sha) == place}
        self.write_captions(place, [sha for _, sha, _ in asked if sha in of_it])

    def write_captions(self, place: int, shas: list[str]) -> None:
        """Write a captioner's captions of these images."""
        rows = {"text": [self.text(place, sha) for sha in shas], "status": [self.status[place][sha] for sha in shas]}
        self.write("captions", self.plan.scorer(self.plan.of_captioner("captions", place)), shas, **rows)

    def compare(self, place: int, asked: list) -> None:
        """Write the similarities of existing captions, as the real step does."""
        scorer = self.plan.scorer(self.plan.of_captioner("captions", place))
        there = {sha for (sha,) in self.lake.query("SELECT sha256 FROM captions WHERE scorer = ?", (scorer,))}
        shas = [sha for _, sha, _ in asked if sha in there]
        self.write("caption_similarity", self.plan.scorer(self.plan.of_captioner("caption_similarity", place)), shas,
                   input_digest=[digest(self.text(place, sha)) for sha in shas],
                   caption_similarity=[self.fits[place][sha] for sha in shas])  # fmt: skip

    def not_fallen(self, asked: list) -> tuple[list[str], list[str]]:
        """Return the images to fuse and the input digests of their texts."""
        judge(self.lake, self.plan)
        fallen = {n for (n,) in self.lake.query("SELECT n FROM cut_late WHERE state <> ''")}
        left = [(sha, sentence) for n, sha, sentence in asked if n not in fallen]
        captions = [self.text(self.chosen(sha), sha) for sha, _ in left]
        texts = zip(captions, left, strict=True)
        return [sha for sha, _ in left], [digest(f"{caption}\x1f\x1f{sentence}") for caption, (_, sentence) in texts]

    def fuse(self, asked: list) -> None:
        """Write the fused texts."""
        shas, fused = self.not_fallen(asked)
        self.write("synthetic", "syn", shas, input_digest=fused, synthetic_text=fused)

    def compare_fused(self, asked: list) -> None:
        """Write the similarities of the fused texts."""
        shas, fused = self.not_fallen(asked)
        self.write("synthetic_similarity", "ss", shas, input_digest=[digest(text) for text in fused],
                   synthetic_similarity=[self.pair[sha] for sha in shas])  # fmt: skip

    def stale(self) -> None:
        """Write outdated rows for half of all images, which the cut must ignore.

        These are fused texts of other sentences, similarities of other texts, and texts of captioners that are not
        requested now.
        """
        shas = [sha for sha in self.pair if self.random.random() < 0.5]
        old = {"input_digest": ["old"] * len(shas)}
        for place in range(len(self.status)):
            self.write_captions(place, [sha for sha in self.pair if self.random.random() < 0.5])
            if place in self.plan.compared_captioners:
                scorer = self.plan.scorer(self.plan.of_captioner("caption_similarity", place))
                self.write("caption_similarity", scorer, shas, **old, caption_similarity=[0.9] * len(shas))
        self.write("synthetic", "syn", shas, **old, synthetic_text=["old"] * len(shas))
        self.write("synthetic_similarity", "ss", shas, input_digest=[digest("old")] * len(shas),
                   synthetic_similarity=[0.5] * len(shas))  # fmt: skip

    def write(self, table: str, scorer: str, shas: list[str], **columns: list) -> None:
        """Write rows of the images that lack an equal one, as a real step does with pending images."""
        self.commit += 1
        made = ("text", "status") if table == "captions" else ("input_digest",)
        known = set(self.lake.query(f"SELECT sha256, {', '.join(made)} FROM {table} WHERE scorer = ?", (scorer,)))
        new = [n for n, sha in enumerate(shas) if (sha, *(columns[name][n] for name in made)) not in known]
        if new:
            rows = {"sha256": [shas[n] for n in new], "shard": ["s"] * len(new), "scorer": [scorer] * len(new)}
            rows |= {name: [values[n] for n in new] for name, values in columns.items()}
            self.lake.insert(table, pa.table({**rows, "commit": pa.array([self.commit] * len(new), pa.int64())}))
            part = (table, f"{table} {self.commit}", "s", scorer, len(new), self.commit)
            names = '"table", partition_id, shard, scorer, rows, "commit"'
            self.lake.execute(f"INSERT INTO partitions ({names}) VALUES (?, ?, ?, ?, ?, ?)", part)


def drawn(sha: str, seed: int, names: list[str]) -> int:
    """Return the index of the captioner that a mixture draws for an image, among captioners of these names."""
    hashes = [hashlib.sha256(f"{sha}\x1fcaptioner\x1f{name}\x1f{seed}".encode()).hexdigest() for name in names]
    return hashes.index(max(hashes))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
