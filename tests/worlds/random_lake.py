"""Random lakes of 80 images with scores, groups, clusters and candidate sentences, and the plan that cuts them."""

import random
from dataclasses import replace

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from tests.reference import cut as slow

SCORERS = {
    "image_quality": "q",
    "image_similarity": "s",
    "image_groups": "g",
    "balance_clusters": "c",
    "matches": "m",
    "sentence_quality": "sq",
}


FILLED = ("images", "image_quality", "image_groups", "clusters", "match_candidates", "image_content",
          "sentence_content", "sentence_quality", "sentences", "sentence_groups", "superseded")  # fmt: skip
CAP, TOP_K, MAX_USES, SEED = 4, 2, 3, 5
RULES = [
    {"name": "length", "keep": "n_words >= 3"},
    {"name": "repeats", "keep": "repeats <= 2"},
    {"name": "wording", "keep": "text not like '%24'"},
]


def plan(
    cap: int = CAP, max_uses: int = MAX_USES, min_side: int = 64, min_sharpness: float = 10, at_least: int = 1,
    *more: dict[str, str],
) -> Plan:  # fmt: skip
    """Compile the plan that cuts the random lakes, with ``more`` rules on images."""
    recipe = Recipe.model_validate(
        {
            "name": "small",
            "seed": SEED,
            "models": {"clip": "open_clip:A/b"},
            "images": [
                {"name": "sharp", "keep": f"sharpness >= {min_sharpness}"},
                {"name": "short_side", "keep": f"least(width, height) >= {min_side}"},
                *more,
            ],
            "sentences": RULES,
            "association": {"top_k": TOP_K, "max_uses": max_uses, "at_least": at_least},
            "balance": {"cap": cap},
        }
    )
    return compile_plan(recipe, SCORERS)


def world(seed: int) -> tuple[list[slow.Image], dict[str, tuple[int, int]]]:
    """Return 80 occurrences of some 60 images in groups and clusters, and each sentence's (words, repeats)."""
    random.seed(seed)
    words = {f"s{n:02}": (random.choice((2, 5, 8)), random.choice((1, 1, 2, 3))) for n in range(25)}
    contents = []
    for n in range(60):
        width, height = random.choice((32, 64, 100, 300)), random.choice((64, 100, 100, 200))
        sharpness = random.choice((None, 5.0, 10.0, 50.0, 80.0))
        # Few distinct values, so that ties are common; with an odd seed a candidate sentence may occur twice.
        found = (random.choices if seed % 2 else random.sample)(sorted(words), k=random.choice((0, 1, 3, 6, 6, 15)))
        candidates = [(name, random.choice((0.1, 0.2, 0.3, 0.4))) for name in found]
        group = f"p{random.randint(0, 80):02}"
        cluster = random.choice((None, *range(7)))
        size = random.choice((10, 20))
        contents.append(slow.Image("", f"p{n:02}", width, height, size, sharpness, group, cluster, 0, "", candidates))
    chosen = contents + random.choices(contents, k=20)
    there = [{"image_id": f"i{n:03}", "position": n % 3, "alt_text": random.choice("ab")} for n in range(80)]
    return [replace(image, **at) for image, at in zip(chosen, there, strict=True)], words


def fill(lake: Lake, images: list[slow.Image], words: dict[str, tuple[int, int]]) -> None:
    """Insert a world into an empty lake."""

    def insert(table: str, **columns: list) -> None:
        n = len(next(iter(columns.values())))
        lake.insert(table, pa.table({**columns, "commit": pa.array([1] * n, pa.int64())}))

    insert(
        "images",
        image_id=[i.image_id for i in images],
        sha256=[i.sha256 for i in images],
        position=pa.array([i.position for i in images], pa.int32()),
        alt_text=[i.alt_text for i in images],
        width=pa.array([i.width for i in images], pa.int32()),
        height=pa.array([i.height for i in images], pa.int32()),
        n_bytes=[i.n_bytes for i in images],
    )
    pictures = list({i.sha256: i for i in images}.values())
    keys = [i.sha256 for i in pictures]
    brightness = [None if i.sharpness is None else 0.5 for i in pictures]
    sharpness = [i.sharpness for i in pictures]
    scorer = ["q"] * len(keys)
    insert("image_quality", sha256=keys, scorer=scorer, sharpness=sharpness, brightness=brightness)
    grouped = [i for i in pictures if i.group <= "p60"]
    groups = [i.group for i in grouped]
    insert("image_groups", sha256=[i.sha256 for i in grouped], group_id=groups, scorer=["g"] * len(grouped))
    near = [i for i in pictures if i.cluster is not None]
    clusters = pa.array([i.cluster for i in near], pa.int32())
    of_image, scorers = ["image"] * len(near), ["c"] * len(near)
    insert("clusters", kind=of_image, key=[i.sha256 for i in near], scorer=scorers, cluster=clusters)
    pairs = [(i.sha256, content, value) for i in pictures for content, value in i.candidates]
    shas, contents, values = zip(*pairs, strict=True)
    insert("match_candidates", sha256=shas, content=contents, similarity=values, scorer=["m"] * len(pairs))
    insert("image_content", sha256=keys)
    insert("sentence_content", content=list(words), text=[f"text {name}" for name in words])
    lengths = pa.array([n for n, _ in words.values()], pa.int32())
    insert("sentence_quality", content=list(words), scorer=["sq"] * len(words), n_words=lengths)
    said = [name for name, (_, repeats) in words.items() for _ in range(repeats)]
    insert("sentences", sentence_id=[f"{n}" for n in range(len(said))], content=said)


def refill(
    lake: Lake, images: list[slow.Image], words: dict[str, tuple[int, int]], others: tuple[str, ...] = ()
) -> None:
    """Replace the lake's world with another, at a third of the cost of a new lake.

    ``others`` are tables that a test fills itself; they are emptied too.
    """
    with lake.transaction():
        for table in (*FILLED, *others):
            lake.execute(f"DELETE FROM {table}")
        fill(lake, images, words)
