"""Write pages with the demo's photographs, and the truth about them.

A curator reads ``OUT/pages/GGG/NNNN.html`` with its pictures beside it. Only measurements read ``OUT/truth``: in
``photographs.json`` each picture's name, its true sentences, and whether its alt text was swapped. The same seed gives
the same bytes.
"""

import argparse
import html
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

PHOTOS = Path(__file__).parent / "photos"
ON_A_PAGE, SWAPPED, COPIES = 2, 10, 8
NAVIGATION = ("Home and latest posts are listed here.", "Subscribe to our weekly newsletter.", "All rights reserved.")


def main() -> None:
    """Write the world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    write(args.out, np.random.default_rng(args.seed))


def write(out: Path, rng: np.random.Generator) -> None:
    """Write pages of two photographs each, then pages of copies and of broken files."""
    photos = json.loads((PHOTOS / "sentences.json").read_text())
    photos = [photos[row] for row in rng.permutation(len(photos))]
    alts = [photo["alt"] for photo in photos]
    swapped = sorted(rng.choice(len(photos), SWAPPED, replace=False).tolist())
    for row, other in zip(swapped, swapped[1:] + swapped[:1], strict=True):
        alts[row] = photos[other]["alt"]
    shown = [(photo, alts[row], (PHOTOS / f"{photo['name']}.jpg").read_bytes()) for row, photo in enumerate(photos)]
    pages = [shown[first : first + ON_A_PAGE] for first in range(0, len(shown), ON_A_PAGE)]
    files = [f"000/{row // ON_A_PAGE:04d}-{row % ON_A_PAGE}.jpg" for row in range(len(photos))]
    truth = [
        {"name": photo["name"], "files": [files[row]], "true": photo["true"], "swapped": row in swapped}
        for row, photo in enumerate(photos)
    ]
    for number, page in enumerate(pages):
        texts = [text for photo, _, _ in page for text in (*photo["true"], photo["near_miss"])]
        write_page(out, number, [(alt, data) for _, alt, data in page], texts, rng)
    copies = []
    honest = [row for row in range(len(photos)) if row not in swapped]
    for position, row in enumerate(rng.choice(honest, COPIES, replace=False)):
        _, alt, data = shown[row]
        copies.append((alt, data if position < 2 else reencoded(data, position)))
        truth[row]["files"].append(f"000/{len(pages):04d}-{position}.jpg")
    write_page(out, len(pages), copies, ["These pictures are shown again by the editors."], rng)
    whole = shown[0][2]
    icon = io.BytesIO()
    Image.open(io.BytesIO(whole)).resize((40, 30)).save(icon, "JPEG")
    broken = [("broken", whole[: len(whole) // 3]), ("page", b"<html>Not found</html>"), ("icon", icon.getvalue())]
    write_page(out, len(pages) + 1, broken, ["Some files on this page were damaged on their way."], rng)
    (out / "truth").mkdir(parents=True, exist_ok=True)
    (out / "truth" / "photographs.json").write_text(json.dumps(truth, indent=1))


def reencoded(data: bytes, row: int) -> bytes:
    """Return a copy of other bytes: smaller, or with a little of its edge cut off."""
    image = Image.open(io.BytesIO(data))
    small = image.resize((image.width * 3 // 4, image.height * 3 // 4)) if row % 2 else ImageOps.crop(image, 4)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=70)
    return stream.getvalue()


def write_page(
    out: Path, number: int, pictures: list[tuple[str, bytes]], texts: list[str], rng: np.random.Generator
) -> None:
    """Write one page: its pictures (alt text, bytes), its sentences in a drawn order, and navigation."""
    folder = out / "pages" / f"{number // 32:03d}"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"<p>{html.escape(texts[row])}</p>" for row in rng.permutation(len(texts))]
    for position, (alt, data) in enumerate(pictures):
        name = f"{number:04d}-{position}.jpg"
        (folder / name).write_bytes(data)
        lines.insert(min(len(lines), 3 * position), f'<img src="{name}" alt="{html.escape(alt)}">')
    lines += [f"<p>{text}</p>" for text in NAVIGATION]
    body = "\n".join(lines)
    (folder / f"{number:04d}.html").write_text(
        f"<!DOCTYPE html><html><body><article>\n{body}\n</article></body></html>\n"
    )


if __name__ == "__main__":
    main()
