"""Draw one picture of the demo world: a glyph of some size, angle and place on a varied background."""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

PATTERNS = {  # kind of background -> the word for it in sentences
    "solid": "plain",
    "gradient": "shaded",
    "glow": "glowing",
    "noise": "speckled",
    "stripes": "striped",
    "checker": "checkered",
    "blobs": "spotted",
}
COLOURS = {
    "red": (205, 45, 45),
    "orange": (240, 145, 50),
    "yellow": (245, 220, 80),
    "green": (70, 160, 75),
    "blue": (55, 100, 200),
    "purple": (130, 75, 175),
    "pink": (245, 165, 195),
    "brown": (125, 80, 50),
    "grey": (140, 140, 145),
    "white": (245, 245, 245),
    "black": (30, 30, 35),
}


NOTHING = -1  # concept of a picture without a glyph


@dataclass(frozen=True)
class Rendering:
    """Contents of a picture; lengths are shares of the shorter side, ``angle`` is in degrees, anticlockwise."""

    concept: int
    width: int
    height: int
    size: float
    angle: float
    x: float
    y: float
    background: str
    colour: str
    seed: int

    def like(self, other: "Rendering") -> bool:
        """Return whether background, angle, place and size are so near that one could pass for a copy of the other."""
        return (
            self.background == other.background
            and abs(self.angle - other.angle) < 15
            and abs(self.x - other.x) + abs(self.y - other.y) < 0.15
            and abs(np.log(self.size / other.size)) < 0.25
        )


def draw_rendering(rng: np.random.Generator, concept: int) -> Rendering:
    """Draw a random rendering: 128-320 px, the glyph 45-85 % of the shorter side and inside the frame."""
    short = int(rng.integers(128, 289))
    long = min(320, int(short * rng.uniform(1, 1.3)))
    width, height = (long, short) if rng.random() < 0.6 else (short, long)
    size, angle = rng.uniform(0.45, 0.85), rng.uniform(-32, 32)
    reach = size / 2  # half the glyph; corners of a rotated one may lie slightly outside
    room_x, room_y = width / short - 2 * reach, height / short - 2 * reach
    x = (reach + rng.random() * max(room_x, 0)) * short / width
    y = (reach + rng.random() * max(room_y, 0)) * short / height
    return Rendering(
        concept, width, height, round(float(size), 4), round(float(angle), 2), round(float(x), 4), round(float(y), 4),
        str(rng.choice(list(PATTERNS))), str(rng.choice(list(COLOURS))), int(rng.integers(2**31)),
    )  # fmt: skip


def background(kind: str, colour: str, width: int, height: int, rng: np.random.Generator) -> np.ndarray:
    """Return a background, (height, width, 3) float32 in 0..255, mostly of ``colour``."""
    base = np.array(COLOURS[colour], np.float32) + rng.normal(0, 8, 3).astype(np.float32)
    other = np.clip(base + rng.choice([-1, 1]) * rng.uniform(35, 80) + rng.normal(0, 20, 3), 0, 255).astype(np.float32)
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    turn = rng.uniform(0, 2 * np.pi)
    along = (np.cos(turn) * (xs - width / 2) + np.sin(turn) * (ys - height / 2)) / max(width, height)
    across = (-np.sin(turn) * (xs - width / 2) + np.cos(turn) * (ys - height / 2)) / max(width, height)
    if kind == "solid":
        mix = np.zeros_like(along)
    elif kind == "gradient":
        mix = np.clip(along + 0.5, 0, 1)
    elif kind == "glow":
        middle = rng.uniform(0.1, 0.9, 2)
        mix = np.clip(1.3 * np.hypot(xs / width - middle[0], ys / height - middle[1]), 0, 1)
    elif kind == "noise":
        cells = int(rng.integers(5, 26))
        grain = Image.fromarray(rng.integers(0, 256, (cells, cells)).astype(np.uint8))
        mix = np.asarray(grain.resize((width, height), Image.Resampling.BICUBIC), np.float32) / 255
    elif kind == "stripes":
        mix = (np.sin(along * rng.uniform(15, 60) + rng.uniform(0, 6)) > rng.uniform(-0.4, 0.4)).astype(np.float32)
    elif kind == "checker":
        cell = rng.uniform(0.05, 0.16)
        mix = ((np.floor(along / cell) + np.floor(across / cell)) % 2).astype(np.float32)
    else:
        mix = np.zeros_like(along)
        for _ in range(int(rng.integers(6, 22))):
            spot, radius = rng.uniform(0, 1, 2), rng.uniform(0.03, 0.13)
            far = np.hypot(xs - spot[0] * width, ys - spot[1] * height) / max(width, height)
            mix = np.maximum(mix, (far < radius).astype(np.float32))
    return base + mix[..., None] * (other - base)


def draw_ground(rendering: Rendering, rng: np.random.Generator) -> Image.Image:
    """Return the background of ``rendering``, with a little noise."""
    width, height = rendering.width, rendering.height
    under = background(rendering.background, rendering.colour, width, height, rng)
    under += rng.normal(0, rng.uniform(0, 4), under.shape).astype(np.float32)
    return Image.fromarray(np.clip(under, 0, 255).astype(np.uint8))


def draw_bare(rendering: Rendering) -> Image.Image:
    """Return the RGB picture of ``rendering`` without its glyph."""
    return draw_ground(rendering, np.random.default_rng(rendering.seed))


def draw_sign(rendering: Rendering, phrase: str) -> Image.Image:
    """Return the RGB picture of ``phrase`` on the background of ``rendering``.

    The text has one to three lines of Pillow's own font. It is black, white or coloured, whichever has enough contrast,
    and fills 70-96 % of the width or the height. No line is longer than some 16 letters: at 96 px, the models' input
    size, a letter is then at least 4 px wide.
    """
    rng = np.random.default_rng(rendering.seed)
    canvas = draw_ground(rendering, rng)
    width, height = canvas.size
    text = broken(phrase, int(rng.integers(1 + (len(phrase) > 16), 4)))
    share = rng.uniform(0.7, 0.96)
    pen = ImageDraw.Draw(canvas)
    left, top, right, bottom = pen.multiline_textbbox((0, 0), text, font=ImageFont.load_default(100), align="center")
    size = 100 * share * min(width / (right - left), height / (bottom - top))
    font = ImageFont.load_default(size)
    left, top, right, bottom = pen.multiline_textbbox((0, 0), text, font=font, align="center")
    x, y = rng.uniform(0.1, 0.9, 2) * (width - (right - left), height - (bottom - top))
    ground = np.asarray(canvas, np.float32).mean((0, 1))
    inks = np.array([COLOURS[name] for name in COLOURS], np.float32)
    far = np.abs(inks.mean(1) - ground.mean())
    ink = inks[rng.choice(np.flatnonzero(far >= min(90, far.max())))]
    pen.multiline_text((x - left, y - top), text, tuple(ink.astype(int).tolist()), font=font, align="center")
    return canvas


def broken(phrase: str, lines: int) -> str:
    """Break the phrase into at most ``lines`` lines of about equal length."""
    words, parts = phrase.split(" "), []
    for left in range(min(lines, len(words)), 0, -1):
        fill, taken = len(" ".join(words)) / left, 1
        while len(words) - taken >= left and len(" ".join(words[: taken + 1])) <= fill + 2:
            taken += 1
        parts.append(" ".join(words if left == 1 else words[:taken]))
        words = words[taken:]
    return "\n".join(parts)


def draw(rendering: Rendering, glyphs: np.ndarray) -> Image.Image:
    """Return the RGB picture of ``rendering``; equal fields give equal pixels."""
    rng = np.random.default_rng(rendering.seed)
    canvas = draw_ground(rendering, rng)
    width, height = canvas.size
    side = max(8, round(rendering.size * min(width, height)))
    glyph = Image.fromarray(glyphs[rendering.concept]).convert(
        "RGBa"
    )  # premultiplied, so that resizing leaves no dark fringe
    glyph = glyph.resize((side, side), Image.Resampling.BICUBIC).rotate(
        rendering.angle, Image.Resampling.BICUBIC, expand=True
    )
    glyph = glyph.convert("RGBA")
    corner = (round(rendering.x * width - glyph.width / 2), round(rendering.y * height - glyph.height / 2))
    canvas.paste(glyph, corner, glyph)
    return canvas


def hue_shifted(picture: Image.Image, turn: float) -> Image.Image:
    """Rotate every hue by ``turn`` of the colour circle (0..1)."""
    hsv = np.array(picture.convert("HSV"))
    hsv[..., 0] = (hsv[..., 0].astype(np.int32) + round(turn * 256)) % 256
    return Image.fromarray(hsv, "HSV").convert("RGB")


_K = np.arange(32)
_DCT = np.cos(np.pi * _K[:8, None] * (2 * _K[None] + 1) / 64)


def perceptual_hash(picture: Image.Image) -> np.uint64:
    """Return 64 bits: which of the 8 x 8 lowest cosine terms of the 32 x 32 grey picture exceed their median."""
    grey = np.asarray(picture.convert("L").resize((32, 32), Image.Resampling.LANCZOS), np.float64)
    terms = _DCT @ grey @ _DCT.T
    return np.packbits(terms > np.median(terms)).view(np.uint64)[0]
