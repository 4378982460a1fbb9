"""Draw the pictures of the demo world one after another: new renderings, copies of earlier ones, and misfits."""

import io
from dataclasses import asdict, dataclass, replace

import numpy as np
from PIL import Image
from render import NOTHING, Rendering, draw, draw_bare, draw_rendering, draw_sign, hue_shifted, perceptual_hash
from signs import phrases

COPIES = {"exact": 0.04, "near": 0.05, "mirrored": 0.025, "recoloured": 0.025}  # share of all pictures
MISFITS = {"tiny": 0.025, "long": 0.02}
UNNAMED = {
    "text": 0.02,
    "ground": 0.02,
}  # shares of pictures of a phrase, and of a background alone; neither shows a concept
HEAD = 0.2  # share of the pictures that show the commonest concept, large enough for the cap of a cluster to act
APART = 8  # pictures other than exact and near copies differ from all others by more bits of the perceptual hash
QUALITY = {"jpg": (72, 96), "webp": (65, 95)}


@dataclass(frozen=True)
class Picture:
    """A file of the world and its truth; ``copy_of`` is the id of the rendering that it copies, '' for an original."""

    kind: str
    data: bytes
    extension: str
    rendering: Rendering | None = None
    rendering_id: str = ""
    copy_of: str = ""
    copy_kind: str = ""
    phrase: str = ""

    @property
    def named(self) -> bool:
        """Whether a glyph is shown, and so a concept."""
        return self.rendering is not None and self.rendering.concept != NOTHING

    def truth(self, concept_names: list[str]) -> dict:
        """Return the row for ``truth/pictures.parquet``, with ``data`` still in it."""
        shown = asdict(self.rendering) if self.rendering else {}
        keep = {key: shown.get(key) for key in ("size", "angle", "x", "y", "background", "colour")}
        concept = concept_names[self.rendering.concept] if self.named else ""
        return keep | {
            "data": self.data, "concept": concept, "kind": self.kind, "rendering": self.rendering_id,
            "original": self.copy_of, "copy_kind": self.copy_kind, "phrase": self.phrase,
        }  # fmt: skip


def encode(picture: Image.Image, extension: str, rng: np.random.Generator) -> bytes:
    """Encode a picture at a random quality; return the file's bytes."""
    buffer = io.BytesIO()
    if extension == "png":
        picture.save(buffer, "PNG", compress_level=6)
    elif extension == "jpg":
        picture.save(buffer, "JPEG", quality=int(rng.integers(*QUALITY["jpg"])))
    else:
        picture.save(buffer, "WEBP", quality=int(rng.integers(*QUALITY["webp"])), method=2)
    return buffer.getvalue()


def near_copy(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Crop up to 3 % of each side, and resize to 75-120 %."""
    width, height = picture.size
    cut = rng.uniform(0, 0.03, 2)
    left, top = rng.random(2) * cut
    box = (left * width, top * height, (1 - cut[0] + left) * width, (1 - cut[1] + top) * height)
    scale = rng.uniform(0.75, 1.2)
    size = (max(112, round(width * scale)), max(112, round(height * scale)))
    return picture.resize(size, Image.Resampling.LANCZOS, box=box)


class Imagery:
    """Draw pictures of Zipf-distributed concepts, one of which is far commoner than the others.

    The class remembers what it drew, so that only planted copies are alike.
    """

    def __init__(self, rng: np.random.Generator, glyphs: np.ndarray):
        self.rng, self.glyphs = rng, glyphs
        weight = 1 / (np.arange(len(glyphs)) + 3.0)
        self.order = rng.permutation(len(glyphs))
        weight[0] = HEAD / (1 - HEAD) * weight[1:].sum()
        self.share = weight / weight.sum()
        self.originals: list[tuple[Picture, Image.Image]] = []
        self.hashes: list[np.uint64] = []
        self.of_concept: dict[int, list[Rendering]] = {}
        self.copied: set[str] = set()
        self.phrases, self.unnamed = phrases(), 0

    def next(self) -> Picture:
        """Return a copy, a misfit or a picture without a concept, each at its share; else a new rendering."""
        draw_, at = self.rng.random(), 0.0
        for kind, share in (COPIES | MISFITS | UNNAMED).items():
            at += share
            if draw_ < at:
                made = (
                    self._copy(kind)
                    if kind in COPIES
                    else self._misfit(kind)
                    if kind in MISFITS
                    else self._unnamed(kind)
                )
                if made is not None:
                    return made
                break
        return self._first()

    def _extension(self) -> str:
        return str(self.rng.choice(["jpg", "png", "webp"], p=[0.55, 0.2, 0.25]))

    def _concept(self) -> int:
        """Draw a concept by its Zipf share."""
        return int(self.order[self.rng.choice(len(self.order), p=self.share)])

    def _apart(self, picture: Image.Image) -> bool:
        """Return whether the picture's hash is far from all others, and remember the hash if so."""
        mine = perceptual_hash(picture)
        if self.hashes and np.bitwise_count(np.array(self.hashes) ^ mine).min() <= APART:
            return False
        self.hashes.append(mine)
        return True

    def _first(self) -> Picture:
        """Return a new rendering, unlike all earlier ones of its concept, and by perceptual hash unlike all others."""
        while True:
            rendering = draw_rendering(self.rng, self._concept())
            if any(rendering.like(other) for other in self.of_concept.get(rendering.concept, [])):
                continue
            image = draw(rendering, self.glyphs)
            if self._apart(image):
                break
        self.of_concept.setdefault(rendering.concept, []).append(rendering)
        extension = self._extension()
        picture = Picture(
            "good", encode(image, extension, self.rng), extension, rendering, f"r{len(self.originals):05d}"
        )
        self.originals.append((picture, image))
        return picture

    def _copy(self, kind: str) -> Picture | None:
        """Return a copy of an earlier rendering that has no copy yet; None if none fits in 30 attempts."""
        for _ in range(30):
            if not self.originals:
                return None
            first, image = self.originals[int(self.rng.integers(len(self.originals)))]
            if first.rendering_id in self.copied:
                continue
            if kind == "exact":
                made = replace(first, copy_of=first.rendering_id, copy_kind=kind)
            else:
                changed = self._changed(kind, image)
                if changed is None:
                    continue
                extension = self._extension()
                data = encode(changed, extension, self.rng)
                made = replace(first, data=data, extension=extension, copy_of=first.rendering_id, copy_kind=kind)
            self.copied.add(first.rendering_id)
            return made
        return None

    def _changed(self, kind: str, image: Image.Image) -> Image.Image | None:
        """Return the copy's pixels; None if a mirrored or recoloured copy would be found by its perceptual hash."""
        if kind == "near":
            return near_copy(image, self.rng)
        if kind == "mirrored":
            changed = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        else:
            changed = hue_shifted(image, self.rng.uniform(0.12, 0.4) * self.rng.choice([-1, 1]))
        return changed if self._apart(changed) else None

    def _misfit(self, kind: str) -> Picture:
        """Return a tiny picture (16-48 px) or a too long one (beyond 3:1), of a random concept."""
        rendering = draw_rendering(self.rng, self._concept())
        if kind == "tiny":
            side = int(self.rng.integers(16, 49))
            rendering = replace(rendering, width=side, height=side, x=0.5, y=0.5)
        else:
            short, ratio = int(self.rng.integers(100, 180)), self.rng.uniform(3.2, 5)
            width, height = (int(short * ratio), short) if self.rng.random() < 0.7 else (short, int(short * ratio))
            rendering = replace(rendering, width=width, height=height, x=float(self.rng.uniform(0.3, 0.7)), y=0.5)
        extension = self._extension()
        return Picture(kind, encode(draw(rendering, self.glyphs), extension, self.rng), extension, rendering)

    def _unnamed(self, kind: str) -> Picture:
        """Return a phrase on a plain or shaded background, or a background alone.

        By perceptual hash it is unlike all other pictures.
        """
        while True:
            rendering = draw_rendering(self.rng, NOTHING)
            phrase = ""
            if kind == "text":
                phrase = str(self.rng.choice(self.phrases))
                rendering = replace(rendering, background=str(self.rng.choice(["solid", "gradient"])))
            image = draw_sign(rendering, phrase) if phrase else draw_bare(rendering)
            if self._apart(image):
                break
        extension, name = self._extension(), f"u{self.unnamed:05d}"
        self.unnamed += 1
        return Picture(kind, encode(image, extension, self.rng), extension, rendering, name, phrase=phrase)

    def plant_faults(self, documents: list, faults: dict) -> None:
        """Add unusable files to random documents, at least one of each kind."""
        total = sum(len(document.pictures) for document in documents)
        for kind, (maker, extension, share) in faults.items():
            for _ in range(max(1, round(share * total))):
                document = documents[int(self.rng.integers(len(documents)))]
                good = self.originals[int(self.rng.integers(len(self.originals)))][0]
                broken = Picture(kind, maker(self.rng, good.data), extension or good.extension)
                document.pictures.insert(int(self.rng.integers(len(document.pictures) + 1)), broken)
