"""Write the demo world: interleaved HTML documents with pictures, and the truth about them.

    .venv/bin/python infra/demo/generate.py --seed 1 --documents 640 --out infra/demo/world

``OUT/pages/GGG/NNNN.html`` with its pictures ``NNNN-P.EXT`` beside it (P counts <img> from 0) is what a curator reads;
``OUT/truth/*.parquet`` is for tests alone. The same arguments give the same bytes.
"""

import argparse
import base64
import hashlib
import html
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from broken import FAULTS
from imagery import Imagery, Picture
from prose import Concepts, noun_phrase, over_long, sentence
from render import PATTERNS
from sheets import names, pictures

GROUP = 32  # documents in a folder
MIME = {"jpg": "image/jpeg", "png": "image/png", "webp": "image/webp"}


@dataclass
class Document:
    """One page on its way: pictures in reading order, and sentences with the picture they belong to (-1: none)."""

    number: int
    embedded: bool
    pictures: list[Picture] = field(default_factory=list)
    sentences: list[dict] = field(default_factory=list)

    @property
    def page(self) -> str:
        return f"{self.number // GROUP:03d}/{self.number:04d}.html"


class Writer:
    """Keeps sentences apart: no text twice, and no concept named that is not meant."""

    def __init__(self, rng: np.random.Generator, concept_names: list[str]):
        self.rng, self.names = rng, concept_names
        self.concepts, self.used = Concepts(concept_names), set()

    def fresh(self, kind: str, concept: str = "", **given: str) -> dict:
        while True:
            text = sentence(self.rng, kind, **given)
            named = self.concepts.found(text)
            if kind in ("boilerplate", "title") or (text not in self.used and named == ([concept] if concept else [])):
                self.used.add(text)
                return {"text": text, "concept": concept, "kind": kind, "near": -1}

    def about(self, picture: Picture) -> dict:
        """A new sentence that names the picture's concept."""
        shown = picture.rendering
        name = self.names[shown.concept]
        size = "large" if shown.size > 0.65 else "small"
        while True:
            phrase = noun_phrase(self.rng, name, shown.colour, PATTERNS[shown.background], size)
            if self.concepts.found(phrase) == [name]:
                return self.fresh("describes", name, np=phrase)

    def aside(self) -> dict:
        """A sentence about nothing pictured; now and then one that a rule drops."""
        draw = self.rng.random()
        if draw < 0.04:
            return self.fresh("url")
        if draw < 0.08:
            glyphs = [chr(int(c)) for c in self.rng.choice([0x1F389, 0x1F388, 0x1F600, 0x2728, 0x1F44D, 0x1F973], 2)]
            return self.fresh("emoji", e1=glyphs[0], e2=glyphs[1])
        if draw < 0.085:
            return {"text": over_long(self.rng), "concept": "", "kind": "length", "near": -1}
        return self.fresh("distractor")


def describe(documents: list[Document], writer: Writer, rng: np.random.Generator) -> None:
    """Give about half the good pictures a sentence on their page; of the rest, most concepts one on another page."""
    told: dict[int, set[int]] = {}
    shown: dict[int, list[tuple[Document, Picture]]] = {}
    for document in documents:
        for place, picture in enumerate(document.pictures):
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
    """Add the sentences that describe nothing, in shuffled places."""
    for _ in range(int(rng.integers(5, 13))):
        document.sentences.append(writer.aside())
    order = rng.permutation(len(document.sentences))
    document.sentences = [document.sentences[k] for k in order]
    for _ in range(int(rng.integers(0, 3))):
        document.sentences.append(writer.fresh("boilerplate"))


def alt_text(rng: np.random.Generator, picture: Picture, concept_names: list[str], source: str) -> str | None:
    """Right for two pictures in five, else useless, empty or absent (None)."""
    draw = rng.random()
    if draw < 0.4 and picture.rendering is not None:
        return concept_names[picture.rendering.concept]
    if draw < 0.55:
        return "image"
    if draw < 0.65:
        return source.rsplit("/", 1)[-1][:40] if not source.startswith("data:") else "picture"
    return "" if draw < 0.85 else None


def body(document: Document, images: list[str], rng: np.random.Generator) -> str:
    """Paragraphs and pictures in reading order; a describing sentence stands just before or after its picture."""
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
        rows += write_page(document, out / "pages", concept_names, writer, rng)
        sentences += [
            {k: s[k] for k in ("text", "concept", "kind")} | {"page": document.page} for s in document.sentences
        ]
    described(rows, sentences)
    (out / "truth").mkdir(parents=True, exist_ok=True)
    for row in rows:
        data = row.pop("data")
        row["sha256"] = hashlib.sha256(data).hexdigest()[:32] if row["kind"] != "missing" else ""
    pq.write_table(pa.Table.from_pylist(rows), out / "truth" / "pictures.parquet")
    pq.write_table(pa.Table.from_pylist(sentences), out / "truth" / "sentences.parquet")
    return {"documents": n_documents, "pictures": len(rows), "sentences": len(sentences)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--documents", type=int, default=640)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.out.exists() and any(args.out.iterdir()):
        parser.error(f"{args.out} is not empty; name a new folder or remove it first")
    print(generate(args.seed, args.documents, args.out))


if __name__ == "__main__":
    main()
