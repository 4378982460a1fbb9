"""A small lake with a published dataset, written by the catalog's own code from given scores."""

import io
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image

from pairmill.catalog.cut import late_cut
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import Published, publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.schema import columns
from pairmill.catalog.pending.contents import index
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.pending.generated import fusion_digest
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe import recipe
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.terms.ids import content_id, text_id
from pairmill.catalog.write import lease
from pairmill.catalog.write.scorer import Scorer
from pairmill.tasks.run.items.partition import Output, Part, write_parts
from tests.worlds import shared

SENTENCES = ("A red fox sleeps in the sun.", "The old bridge crosses the river twice.", "Two boats wait for the wind.")
REALSYN = ("raw_image_url", "text1", "text2", "text3", "syn_text")  # the columns that the paper's authors release
FORMATS = ("jpeg", "png", "webp")
SCORED = ("image_quality", "image_embedding", "balance_clusters", "matches", "image_similarity", "sentence_quality")
IMAGE_RULES = ({"name": "short_side", "keep": "least(width, height) >= 40"},)


def picture(n: int) -> bytes:
    """Return an image of its own colour, 30 + 10 n pixels wide, in one of three formats in turn."""
    out = io.BytesIO()
    colour = (37 * n % 256, 91 * n % 256, 53 * n % 256)
    Image.new("RGB", (30 + 10 * n, 60 + n), colour).save(out, FORMATS[n % 3])
    return out.getvalue()


@dataclass(frozen=True)
class Contents:
    """What a lake holds: images in three shards, clusters in turn.

    An empty ``caption``, ``alt_text``, ``tags`` or other value leaves out its rows or texts.
    """

    pictures: int = 12
    sentences: tuple[str, ...] = SENTENCES
    similarity: float | None = 0.5
    alt_text: str = "a picture"
    url: str = "https://example.org/{n}.jpg"
    caption: str = "A coloured field."
    tags: tuple[str, ...] = ("field",)
    clusters: int = 2
    cap: int | str = 3
    image_rules: tuple[dict[str, str], ...] = IMAGE_RULES
    faults: tuple[tuple[str, str, str], ...] = (("broken.jpg", "truncated", "jpeg: Premature end"),)
    top_k: int = 3


def published(folder: Path, **contents: Any) -> Published:
    """Publish dataset `small` in the lake at ``folder``, which holds the given fields of `Contents`.

    A lake that does not exist is a copy of the one that the test run made for these contents: 0.3 CPU s, not 2.5.
    """
    wanted = Contents(**contents)
    if not shared.PLACE or folder.exists() or not wanted.pictures:  # no file shows that a lake without any was copied
        return _publish(folder, wanted)

    def make(place: Path) -> None:
        found = _publish(place / "lake", wanted)
        (place / "published.json").write_text(json.dumps(asdict(found)))

    place = shared.made_once(f"published-{text_id(repr(wanted))}", make)
    shared.copied(place / "lake", folder)
    return Published(**json.loads((place / "published.json").read_text()))


def _publish(folder: Path, contents: Contents) -> Published:
    has_caption, has_tags = bool(contents.caption), bool(contents.tags)
    plan, scorers = plan_of(contents.cap, contents.image_rules, has_caption, has_tags, contents.top_k)
    with shared.opened_new(folder) as lake, lease.writing(lake, "run-1", "test") as writer:
        output = Output(lake.data_path, "run-1", writer.begin("ingest", scorers))
        made = _ingested(contents)
        made += _scores(plan, made, contents)
        for shard, rows in _images(made):
            if contents.caption:
                made += [(shard, part) for part in _captions(plan, rows["sha256"], contents.caption)]
            if contents.tags:
                made.append((shard, _tags(plan, rows["sha256"], contents.tags)))
        writer.commit(
            [
                replace(manifest, seconds=1.25)
                for shard, part in made
                for manifest in write_parts([part], WorkItem(shard, (part.table,)), output)
            ]
        )
        index(lake, lambda: writer.begin("index contents"))
        cut(lake, plan)
        return publish(lake, plan, "run-1", 0.9, lambda: writer.begin("publish"))


def insert_fused(lake: Lake, plan: Plan, **columns: list) -> list[str]:
    """Insert fused texts for the images that a cut keeps, with current input digests; return the images.

    ``columns`` may be longer than the number of images.
    """
    cut(lake, plan)
    late_cut.select_wave(lake, plan, 1)
    made = fusion_digest("coalesce(c.text, '')", "coalesce(t.tags, [])", "w.sentence")
    rows = lake.query(
        f"SELECT w.sha256, {made} FROM wave_asked w LEFT JOIN {current_scores(plan, 'captions', 'sha256')} c "
        f"ON c.sha256 = w.sha256 AND c.status = 'ok' LEFT JOIN {current_scores(plan, 'tags', 'sha256')} t "
        "ON t.sha256 = w.sha256 ORDER BY ALL"
    )
    n = len(rows)
    keys = {"sha256": [sha for sha, _ in rows], "input_digest": [digest for _, digest in rows]}
    same = {"shard": ["shard-0"] * n, "scorer": [plan.scorer("synthetic")] * n, "commit": pa.array([9] * n, pa.int64())}
    lake.insert("synthetic", pa.table({**keys, **same, **{name: values[:n] for name, values in columns.items()}}))
    return keys["sha256"]


def plan_of(
    cap: int | str, rules: tuple[dict[str, str], ...], captions: bool, tags: bool, top_k: int = 3
) -> tuple[Plan, list[Scorer]]:
    """Compile the recipe's plan with its scorers."""
    content = {
        "name": "small",
        "models": {"clip": "open_clip:tiny/none", "captioner": "hf:tiny"},
        "images": list(rules),
        "sentences": [{"name": "length", "keep": "n_words between 3 and 81"}],
        "association": {"max_uses": 1000, "top_k": top_k},
        "balance": {"cap": cap},
        "captioners": [{"name": "main"}] if captions else [],
        "tags": {"vocabulary": ["field"]} if tags else None,
    }
    plan = compile_plan(recipe.validate(content, "small"), {})
    names = [*SCORED, *["captions", "caption_similarity"] * captions, *["tags"] * tags]
    scorers = [Scorer(name, name, 1, {"side": 224}, "0" * 32) for name in names]
    for scorer in scorers:
        plan = plan.with_scorer(scorer.name, scorer.digest)
    return plan, scorers


def _ingested(contents: Contents) -> list[tuple[str, Part]]:
    parts: list[tuple[str, Part]] = []
    for shard in range(3):
        data = {m: picture(m) for m in range(contents.pictures) if m % 3 == shard}
        images = [_image(m, data[m], contents.alt_text, contents.url) for m in data]
        rows = {
            "documents": [{"document_id": row["document_id"], "source": "s", "uri": row["url"]} for row in images],
            "images": images,
            "payloads": [{"sha256": content_id(data[m]), "bytes": data[m], "length": len(data[m])} for m in data],
        }
        parts += [(f"shard-{shard}", _part(table, each)) for table, each in rows.items() if each]
    texts = [
        {"sentence_id": text_id(text), "document_id": "d", "position": at, "text": text, "content": text_id(text)}
        for at, text in enumerate(contents.sentences)
    ]
    bad = [
        {"item": item, "source": "s", "stage": "ingest", "reason": why, "detail": what}
        for item, why, what in contents.faults
    ]
    return parts + [
        ("shard-0", _part(name, rows)) for name, rows in (("sentences", texts), ("quarantine", bad)) if rows
    ]


def _image(n: int, data: bytes, alt_text: str, url: str) -> dict:
    size = {"width": 30 + 10 * n, "height": 60 + n, "format": FORMATS[n % 3], "n_bytes": len(data)}
    names = {
        "image_id": text_id("image", str(n)),
        "document_id": text_id("document", str(n)),
        "sha256": content_id(data),
    }
    return {**names, "position": 0, "url": url.format(n=n), "alt_text": alt_text, **size}


def _part(table: str, rows: list[dict], scorer: str = "") -> Part:
    """Return a part with every column of the table; columns that a test leaves out are NULL."""
    given = {"shard", "commit", "scorer", "run_id"}
    names = [name for name in columns(table) if name not in given]
    return Part(table, pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]), scorer)


def _images(parts: list[tuple[str, Part]]) -> list[tuple[str, dict]]:
    return [(shard, part.rows.to_pydict()) for shard, part in parts if part.table == "images"]


def _scores(plan: Plan, parts: list, contents: Contents) -> list:
    sentences, similarity = contents.sentences, contents.similarity
    words = [{"content": text_id(text), "n_words": len(text.split()), "text_entropy": 3.0} for text in sentences]
    made = [("shard-0", _part("sentence_quality", words, plan.scorer("sentence_quality")))] if words else []
    for shard, rows in _images(parts):
        shas = list(enumerate(rows["sha256"]))
        of_table = {
            "image_quality": [{"sha256": sha, "sharpness": 3.5 * n, "brightness": n / 20} for n, sha in shas],
            "clusters": [{"kind": "image", "key": sha, "cluster": n % contents.clusters} for n, sha in shas],
            "match_candidates": [row for _, sha in shas for row in _candidates(sha, sentences, similarity)],
            "image_similarity": [{"sha256": sha, "input_digest": "", "best_similarity": similarity} for _, sha in shas],
        }
        scorers = {"clusters": "balance_clusters", "match_candidates": "matches"}
        made += [(shard, _part(t, each, plan.scorer(scorers.get(t, t)))) for t, each in of_table.items() if each]
    return made


def _candidates(sha256: str, sentences: tuple[str, ...], similarity: float | None) -> list[dict]:
    scores = [None if similarity is None else round(similarity - n / 10, 4) for n in range(len(sentences))]
    texts = zip(sentences, scores, strict=True)
    return [{"sha256": sha256, "content": text_id(text), "similarity": score} for text, score in texts]


def _captions(plan: Plan, shas: list[str], caption: str) -> list[Part]:
    row = {"captioner": "main", "prompt": "?", "text": caption, "status": "ok", "n_tokens": 4, "seconds": 0.5}
    near = {"input_digest": "", "caption_similarity": 0.55}
    of_table = {"captions": row, "caption_similarity": near}
    return [_part(t, [{"sha256": sha, **each} for sha in shas], plan.scorer(t)) for t, each in of_table.items()]


def _tags(plan: Plan, shas: list[str], tags: tuple[str, ...]) -> Part:
    row = {"tags": list(tags), "tag_similarities": [0.3] * len(tags)}
    return _part("tags", [{"sha256": sha, **row} for sha in shas], plan.scorer("tags"))
