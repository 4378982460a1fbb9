"""Print how good the demo's run on photographs is, against the truth that only this program reads.

``--world`` is what photo_world.py wrote, ``--lake`` the lake of the run, ``--models`` what photo_towers.py wrote.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

import pairmill as pm
from pairmill.ops.models.clip.clip import Clip

LEAST = 0.1  # of `alt_similarity`: an alt text below is taken for another picture's


def main() -> None:
    """Measure and print three lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("world", "lake", "models"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    found = measured(args.world, args.lake, args.models)
    print("quality on photographs, against the planted truth:")
    print("  first sentence right    {first[0]} of {first[1]} pairs".format(**found))
    print(
        "  swapped alt texts found {swapped[0]} of {swapped[1]}, with {right[0]} of {right[1]} right ones, by "
        "alt_similarity < {LEAST}".format(**found, LEAST=LEAST)
    )
    print("  search by a sentence    R@1 {at_1:.2f}, R@5 {at_5:.2f} of {n} photographs".format(**found))


def measured(world: Path, lake: Path, models: Path) -> dict:
    """Return counts (part, whole) as ``first``, ``swapped`` and ``right``, recalls ``at_1`` and ``at_5``, and ``n``."""
    truth = json.loads((world / "truth" / "photographs.json").read_text())
    of_file = {file: photo for photo in truth for file in photo["files"]}

    def name_of(url: str) -> str:
        return "/".join(url.split("/")[-2:])

    with pm.open(str(lake)) as opened:
        newest = "version = (SELECT max(version) FROM pairs WHERE dataset = 'demo')"
        pairs = (
            opened.sql(f"SELECT raw_image_url AS file, text1 FROM pairs WHERE dataset = 'demo' AND {newest}")
            .to_arrow_table()
            .to_pylist()
        )
        alts = (
            opened.sql("SELECT DISTINCT url AS file, alt_similarity FROM images JOIN image_similarity USING (sha256)")
            .to_arrow_table()
            .to_pylist()
        )
    right = [pair["text1"] in of_file[name_of(pair["file"])]["true"] for pair in pairs if pair["text1"]]
    low: dict[str, list[bool]] = {"swapped": [], "right": []}
    for row in alts:
        photo = of_file.get(name_of(row["file"]))
        if photo and row["alt_similarity"] is not None and name_of(row["file"]) == photo["files"][0]:
            low["swapped" if photo["swapped"] else "right"].append(row["alt_similarity"] < LEAST)
    recalls = search(world, models, truth)
    return {"first": (sum(right), len(right)), **{name: (sum(was), len(was)) for name, was in low.items()}, **recalls}


def search(world: Path, models: Path, truth: list[dict]) -> dict:
    """Return the recall at 1 and 5 of each true sentence among all photographs, and their number."""
    clip = Clip(f"open_clip:local-dir:{models / 'clip'}")
    images = [np.array(Image.open(world / "pages" / photo["files"][0]).convert("RGB")) for photo in truth]
    cosines = clip.embed_texts([text for photo in truth for text in photo["true"]]) @ clip.embed_images(images).T
    own = np.repeat(np.arange(len(truth)), [len(photo["true"]) for photo in truth])
    ranks = (cosines > cosines[np.arange(len(own)), own][:, None]).sum(1)
    return {"at_1": float((ranks < 1).mean()), "at_5": float((ranks < 5).mean()), "n": len(truth)}


if __name__ == "__main__":
    main()
