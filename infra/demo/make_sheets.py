"""Draw the named pictures of Noto Color Emoji onto WebP sheets, with their names in ``glyphs.json``.

    apt-get install fonts-noto-color-emoji
    .venv/bin/python infra/demo/make_sheets.py [--font FILE] [--out infra/demo/glyphs]

A glyph that is a mirrored, turned, recoloured or nearly equal version of another one is left out. The demo world plants
mirrored, turned and recoloured copies, so such a pair would be two names for one picture.
"""

import argparse
import json
import unicodedata
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIDE = 96  # px of a glyph on a sheet
ACROSS = 16  # glyphs in a row, and rows in a sheet
SAME = 0.90  # correlation of shading and silhouette at or above which two glyphs count as one picture
SKIP = ("REGIONAL INDICATOR", "EMOJI MODIFIER", "KEYCAP", "SQUARED CJK", "TAG ", "CLOCK FACE", "EMOJI COMPONENT")


def draw(char: str, font: ImageFont.FreeTypeFont) -> Image.Image | None:
    """Return the glyph centred on a transparent SIDE x SIDE square, or None if the font has no picture of it."""
    canvas = Image.new("RGBA", (160, 160), (0, 0, 0, 0))
    ImageDraw.Draw(canvas).text((0, 0), char, font=font, embedded_color=True)
    box = canvas.getbbox()
    if box is None:
        return None
    glyph = canvas.crop(box)
    side = max(glyph.size)
    square = Image.new("RGBA", (side, side), (0, 0, 0, 0))
    square.paste(glyph, ((side - glyph.width) // 2, (side - glyph.height) // 2))
    return square.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def named_pictures(font_file: Path) -> list[tuple[int, str, Image.Image]]:
    """Return (codepoint, lower-case name, picture) of every named picture in the font, in codepoint order."""
    font = ImageFont.truetype(str(font_file), 109, layout_engine=ImageFont.Layout.BASIC)
    found = []
    for code in [*range(0xA0, 0x3300), *range(0x1F000, 0x1FB00)]:
        name = unicodedata.name(chr(code), "")
        if not name or name.startswith(SKIP):
            continue
        picture = draw(chr(code), font)
        if picture is not None:
            found.append((code, name.lower(), picture))
    return found


def fingerprints(picture: Image.Image) -> np.ndarray:
    """Return grey shading and silhouette under 8 rotations, each plain and mirrored.

    Returns:
        Unit rows, (16, 2 * 24 * 24) float32.
    """
    rows = []
    for mirrored in (False, True):
        one = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else picture
        for degrees in range(0, 360, 45):
            small = one.rotate(degrees, Image.Resampling.BICUBIC).resize((24, 24), Image.Resampling.BOX)
            pixels = np.asarray(small, np.float32)
            alpha = pixels[..., 3] / 255
            grey = pixels[..., :3].mean(-1)
            inside = alpha > 0.5
            grey = np.where(inside, grey - grey[inside].mean(), 0) if inside.any() else np.zeros_like(grey)
            grey /= np.linalg.norm(grey) + 100.0  # the constant keeps the shading of a flat glyph from becoming noise
            edge = alpha - alpha.mean()
            rows.append(np.concatenate([grey.ravel(), 0.7 * (edge / np.linalg.norm(edge)).ravel()]))
    stack = np.stack(rows)
    return stack / np.linalg.norm(stack, axis=1, keepdims=True)


def distinct(pictures: list[tuple[int, str, Image.Image]]) -> list[int]:
    """Return the indexes of the kept pictures: no earlier kept one equals them, even mirrored, turned or recoloured.

    Rotations are compared in steps of 45 degrees.
    """
    prints = [fingerprints(picture) for _, _, picture in pictures]
    kept: list[int] = []
    for index, mine in enumerate(prints):
        others = np.stack([prints[k][0] for k in kept]) if kept else np.zeros((0, mine.shape[1]))
        if not (others @ mine.T > SAME).any():
            kept.append(index)
    return kept


def write_sheets(pictures: list[tuple[int, str, Image.Image]], out: Path) -> None:
    """Write ``sheet_NN.webp`` of ACROSS x ACROSS glyphs each, and ``glyphs.json`` in the same order."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("sheet_*.webp"):
        old.unlink()
    each = ACROSS * ACROSS
    for number in range(0, len(pictures), each):
        sheet = Image.new("RGBA", (ACROSS * SIDE, ACROSS * SIDE), (0, 0, 0, 0))
        for place, (_, _, picture) in enumerate(pictures[number : number + each]):
            sheet.paste(picture, (place % ACROSS * SIDE, place // ACROSS * SIDE))
        sheet.save(out / f"sheet_{number // each:02d}.webp", quality=88, alpha_quality=90, method=6)
    index = [{"codepoint": f"U+{code:04X}", "name": name} for code, name, _ in pictures]
    lines = ",\n".join(json.dumps(row) for row in index)
    (out / "glyphs.json").write_text(f'{{"side": {SIDE}, "across": {ACROSS}, "glyphs": [\n{lines}\n]}}\n')


def main() -> None:
    """Draw the distinct glyphs and write the sheets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--font", type=Path, default=Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "glyphs")
    args = parser.parse_args()
    pictures = named_pictures(args.font)
    kept = [pictures[k] for k in distinct(pictures)]
    write_sheets(kept, args.out)
    size = sum(file.stat().st_size for file in args.out.glob("sheet_*.webp"))
    print(f"{len(kept)} of {len(pictures)} named pictures on sheets of {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
