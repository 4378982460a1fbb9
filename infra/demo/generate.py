"""Write the demo world: interleaved HTML documents with pictures, and the truth about them.

    .venv/bin/python infra/demo/generate.py --seed 1 --documents 320 --out infra/demo/world

A curator reads ``OUT/pages/GGG/NNNN.html`` with its pictures ``NNNN-P.EXT`` beside it (P counts <img> from 0). Only
tests read ``OUT/truth/*.parquet``. The same arguments give the same bytes.
"""

import argparse
import base64
import hashlib
import html
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from broken import FAULTS
from imagery import Imagery, Picture
from prose import Concepts, noun_phrase, over_long, sentence, sentence_twice
from render import PATTERNS
from sheets import names, pictures
from spoiled import common_over, near_copy, noise, shuffled, swapped

GROUP = 32  # documents in a folder
REPEATED = ("boilerplate", "slogan", "title")  # kinds of sentences that may occur on many pages
# Share of each kind, among sentences about nothing pictured, that targets one filter; the rest are distractors.
ASIDES = {
    "url": 0.04, "emoji": 0.04, "length": 0.005, "stock_phrase": 0.015, "slogan": 0.01, "noise": 0.03, "no_relation": 0.03,
    "no_action": 0.04, "garbled": 0.04, "easy": 0.015,
}  # fmt: skip
NEAR_COPIES, PARAPHRASES = (
    0.05,
    0.25,
)  # share of the sentences that pass the filters; share of those that have a paraphrase
MIME = {"jpg": "image/jpeg", "png": "image/png", "webp": "image/webp"}


@dataclass
class Document:
    """One page: its pictures in reading order, and its sentences, each with its picture's position (-1: none)."""

    number: int
    embedded: bool
    pictures: list[Picture] = field(default_factory=list)
    sentences: list[dict] = field(default_factory=list)

    @property
    def page(self) -> str:
        """Path of the page below the folder of pages."""
        return f"{self.number // GROUP:03d}/{self.number:04d}.html"


class Writer:
    """Write sentences such that no text occurs twice and no concept is named by accident."""

    def __init__(self, rng: np.random.Generator, concept_names: list[str]):
        self.rng, self.names = rng, concept_names
        self.concepts, self.used = Concepts(concept_names), set()

    def fresh(self, kind: str, concept: str = "", **given: str) -> dict:
        """Return a new sentence of ``kind`` that names ``concept`` alone, or no concept if '' is given."""
        while True:
            text, other = sentence_twice(self.rng, kind, **given)
            named = self.concepts.found(text)
            if kind in REPEATED or (text not in self.used and named == ([concept] if concept else [])):
                self.used.add(text)
                return row(text, kind, concept) | {"other": other}

    def about(self, picture: Picture) -> dict:
        """Return a new sentence that names the picture's concept."""
        return self.fresh("describes", self.names[picture.rendering.concept], np=self.phrase(picture))

    def phrase(self, picture: Picture) -> str:
        """Return a noun phrase that names the picture's concept and no other."""
        shown = picture.rendering
        name = self.names[shown.concept]
        size = "large" if shown.size > 0.65 else "small"
        while True:
            phrase = noun_phrase(self.rng, name, shown.colour, PATTERNS[shown.background], size)
            if self.concepts.found(phrase) == [name]:
                return phrase

    def aside(self, pictures: list[Picture]) -> dict:
        """Return a sentence that describes nothing; some target a filter, and these may name a picture."""
        kind = str(self.rng.choice([*ASIDES, "distractor"], p=[*ASIDES.values(), 1 - sum(ASIDES.values())]))
        if kind in ("noise", "no_action", "garbled", "easy"):
            return self.spoiled(kind, pictures)
        if kind == "length":
            return row(over_long(self.rng), kind)
        glyphs = [chr(int(c)) for c in self.rng.choice([0x1F389, 0x1F388, 0x1F600, 0x2728, 0x1F44D, 0x1F973], 2)]
        return self.fresh(kind, e1=glyphs[0], e2=glyphs[1])

    def spoiled(self, kind: str, pictures: list[Picture]) -> dict:
        """Return a new sentence of a kind that describes nothing whatever it names; its truth has no concept."""
        while True:
            good = [picture for picture in pictures if picture.named]
            phrase = self.phrase(good[int(self.rng.integers(len(good)))]) if good else "the frame"
            if kind == "noise":
                text = noise(self.rng)
            elif kind == "easy":
                text = common_over(self.rng)
            elif kind == "no_action":
                text = sentence(self.rng, kind, np=phrase)
            else:
                whole = sentence(self.rng, str(self.rng.choice(["describes", "distractor"])), np=phrase)
                text = (shuffled if self.rng.random() < 0.5 else swapped)(self.rng, whole)
            if text not in self.used:
                self.used.add(text)
                return row(text, kind)

    def copy(self, sentence: dict) -> dict | None:
        """Return a paraphrase or near copy of the sentence for another page; None for most sentences."""
        draw = self.rng.random()
        if sentence["other"] and draw < PARAPHRASES:
            text, kind = sentence["other"], "paraphrase"
        elif not sentence["other"] and draw < NEAR_COPIES:
            text, kind = near_copy(self.rng, sentence["text"]), "near"
        else:
            return None
        if text in self.used:
            return None
        self.used.add(text)
        copied = {"original": sentence["text"], "copy_kind": kind}
        return row(text, sentence["kind"], sentence["concept"]) | copied


def row(text: str, kind: str, concept: str = "") -> dict:
    """Return a sentence's truth row: ``near`` is the picture beside it (-1: none), ``other`` its paraphrase."""
    return {"text": text, "concept": concept, "kind": kind, "near": -1, "other": "", "original": "", "copy_kind": ""}


def describe(documents: list[Document], writer: Writer, rng: np.random.Generator) -> None:
    """Give about half of the good pictures a sentence on their page.

    Most concepts that still lack sentences get some on other pages.
    """
    told: dict[int, set[int]] = {}
    shown: dict[int, list[tuple[Document, Picture]]] = {}
    for document in documents:
        for place, picture in enumerate(document.pictures):
            if picture.phrase and rng.random() < 0.5:
                document.sentences.append(writer.fresh("sign", phrase=picture.phrase) | {"near": place})
            if picture.kind != "good":
                continue
            shown.setdefault(picture.rendering.concept, []).append((document, picture))
            if rng.random() < 0.52:
                document.sentences.append(writer.about(picture) | {"near": place})
                told.setdefault(picture.rendering.concept, set()).add(document.number)
    for concept, showings in shown.items():
        missing = max(1, len(showings) // 4) - len(told.get(concept, ()))
        if missing > 0 and (concept in told or rng.random() < 0.88):
            for _ in range(missing):
                where = documents[int(rng.integers(len(documents)))]
                where.sentences.append(writer.about(showings[int(rng.integers(len(showings)))][1]))


def fill(document: Document, writer: Writer, rng: np.random.Generator) -> None:
    """Add sentences that describe nothing, and shuffle all sentences; boilerplate comes last."""
    for _ in range(int(rng.integers(5, 13))):
        document.sentences.append(writer.aside(document.pictures))
    order = rng.permutation(len(document.sentences))
    document.sentences = [document.sentences[k] for k in order]
    for _ in range(int(rng.integers(0, 3))):
        document.sentences.append(writer.fresh("boilerplate"))


def copy_sentences(documents: list[Document], writer: Writer, rng: np.random.Generator) -> None:
    """Repeat some sentences on other pages."""
    good = [s for d in documents for s in d.sentences if s["kind"] in ("describes", "distractor")]
    for copied in filter(None, map(writer.copy, good)):
        sentences = documents[int(rng.integers(len(documents)))].sentences
        sentences.insert(int(rng.integers(len(sentences) + 1)), copied)


def alt_text(rng: np.random.Generator, picture: Picture, concept_names: list[str], source: str) -> str | None:
    """Return an alt text: right for two pictures in five, else useless, empty or absent (None)."""
    draw = rng.random()
    if draw < 0.4 and picture.named:
        return concept_names[picture.rendering.concept]
    if draw < 0.4 and picture.phrase:
        return picture.phrase
    if draw < 0.55:
        return "image"
    if draw < 0.65:
        return source.rsplit("/", 1)[-1][:40] if not source.startswith("data:") else "picture"
    return "" if draw < 0.85 else None


def body(document: Document, images: list[str], rng: np.random.Generator) -> str:
    """Return paragraphs and pictures in reading order, each describing sentence next to its picture."""
    near = {s["near"]: s["text"] for s in document.sentences if s["near"] >= 0}
    loose = [s["text"] for s in document.sentences if s["near"] < 0 and s["kind"] not in ("boilerplate", "title")]
    closing = [s["text"] for s in document.sentences if s["kind"] == "boilerplate"]
    blocks, share = [], -(-len(loose) // (len(images) + 1))
    for place in range(len(images) + 1):
        mine = loose[place * share : (place + 1) * share]
        figure = rng.random() < 0.3
        if place < len(images):
            mine += [near[place]] if place in near and not figure else []
        if mine:
            blocks.append("<p>" + html.escape(" ".join(mine), quote=False) + "</p>")
        if place < len(images) and figure:
            caption = f"<figcaption>{html.escape(near[place], quote=False)}</figcaption>" if place in near else ""
            blocks.append(f"<figure>{images[place]}{caption}</figure>")
        elif place < len(images):
            blocks.append(images[place])
    footer = "".join(f"<p>{html.escape(text, quote=False)}</p>" for text in closing)
    return "\n".join(blocks) + (f"\n<footer>{footer}</footer>" if footer else "")


def write_page(
    document: Document, root: Path, concept_names: list[str], writer: Writer, rng: np.random.Generator
) -> list[dict]:
    """Write the page and its pictures under ``root``; return the truth rows of its pictures."""
    rows, tags = [], []
    file = root / document.page
    file.parent.mkdir(parents=True, exist_ok=True)
    for position, picture in enumerate(document.pictures):
        path = f"{document.page[:-5]}-{position}.{picture.extension}"
        source = path.rsplit("/", 1)[-1]
        if document.embedded and picture.kind == "good":
            source = f"data:{MIME[picture.extension]};base64,{base64.b64encode(picture.data).decode()}"
            path = ""
        elif picture.kind != "missing":
            (root / path).write_bytes(picture.data)
        alt = alt_text(rng, picture, concept_names, source)
        tags.append(f'<img src="{source}"' + (f' alt="{html.escape(alt)}">' if alt is not None else ">"))
        rows.append(
            picture.truth(concept_names) | {"path": path, "page": document.page, "position": position, "alt": alt or ""}
        )
    title = writer.fresh("title")
    document.sentences.append(title)
    text = html.escape(title["text"], quote=False)
    head = f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{text}</title></head>\n<body>\n<h1>{text}</h1>\n'
    file.write_text(head + body(document, tags, rng) + "\n</body>\n</html>\n", encoding="utf-8")
    return rows


def described(rows: list[dict], sentences: list[dict]) -> None:
    """Fill ``described`` of every good picture: own, elsewhere or nowhere; '' for the others."""
    pages: dict[str, set[str]] = {}
    for row in sentences:
        if row["concept"]:
            pages.setdefault(row["concept"], set()).add(row["page"])
    for row in rows:
        where = pages.get(row["concept"], set())
        row["described"] = (
            "" if row["kind"] != "good" else "own" if row["page"] in where else "elsewhere" if where else "nowhere"
        )


def generate(seed: int, n_documents: int, out: Path) -> dict[str, int]:
    """Write the whole world under ``out`` and return its counts."""
    rng = np.random.default_rng([seed, 20261120])
    concept_names = names()
    imagery, writer = Imagery(rng, pictures()), Writer(rng, concept_names)
    documents = [Document(number, embedded=bool(rng.random() < 0.1)) for number in range(n_documents)]
    for document in documents:
        document.pictures = [imagery.next() for _ in range(int(rng.integers(3, 9)))]
    imagery.plant_faults(documents, FAULTS)
    describe(documents, writer, rng)
    rows, sentences = [], []
    for document in documents:
        fill(document, writer, rng)
    copy_sentences(documents, writer, rng)
    for document in documents:
        rows += write_page(document, out / "pages", concept_names, writer, rng)
        sentences += [
            {k: s[k] for k in ("text", "concept", "kind", "original", "copy_kind")} | {"page": document.page}
            for s in document.sentences
        ]
    described(rows, sentences)
    (out / "truth").mkdir(parents=True, exist_ok=True)
    for row in rows:
        data = row.pop("data")
        row["sha256"] = hashlib.sha256(data).hexdigest()[:32] if row["kind"] != "missing" else ""
    pq.write_table(pa.Table.from_pylist(rows), out / "truth" / "pictures.parquet")
    pq.write_table(pa.Table.from_pylist(sentences), out / "truth" / "sentences.parquet")
    counts = {"documents": n_documents, "pictures": len(rows), "sentences": len(sentences)}
    (out / "truth" / "counts.json").write_text(json.dumps({"seed": seed, **counts}))
    return counts


def main() -> None:
    """Write the world, into a new or empty folder only."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--documents", type=int, default=320)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.out.exists() and any(args.out.iterdir()):
        parser.error(f"{args.out} is not empty; name a new folder or remove it first")
    print(generate(args.seed, args.documents, args.out))


if __name__ == "__main__":
    main()
