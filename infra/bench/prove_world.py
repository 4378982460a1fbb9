"""Compare selections of a drawn world by `pairmill prove`'s trainings: half of its texts are another picture's.

Run as ``python -m infra.bench.prove_world [--documents D] [--seeds S]``. The pairs are a world's good pictures with a
caption from the truth, of which a drawn half is exchanged, and half are mistyped. The filter is the small CLIP that
ships, and keeps the better half by its cosine; the judge's towers are those of photographs
(`infra/demo/photo_towers.py`). ``random`` and ``oracle`` are the controls of `pairmill prove`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from infra.bench.measure import Row, finish, parser
from infra.demo.photo_towers import save_clip
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.whole.cut_trials import UNSEEN, Pool, centred, difference, kinds_of, random_arm, recalls

ROOT = Path(__file__).resolve().parents[2]
FILTER = f"open_clip:local-dir:{ROOT}/infra/demo/models/clip"


def world_pairs(folder: Path, documents: int) -> tuple[list[np.ndarray], list[str], np.ndarray]:
    """Return a world's good pictures, their texts, and which of these are right."""
    asked = ["--seed", "41", "--documents", str(documents), "--out", str(folder)]
    subprocess.run([sys.executable, str(ROOT / "infra/demo/generate.py"), *asked], check=True, capture_output=True)
    rng = np.random.default_rng(41)
    rows = [
        row
        for row in pq.read_table(folder / "truth/pictures.parquet").to_pylist()
        if row["kind"] == "good" and row["path"]
    ]
    pixels = [np.asarray(Image.open(folder / "pages" / row["path"]).convert("RGB")) for row in rows]
    own = [f"{row['colour']} {row['concept']} on a {row['background']} background" for row in rows]
    said = np.arange(len(rows))
    wrong = np.flatnonzero(rng.random(len(rows)) < 0.5)
    said[wrong] = rng.permutation(wrong)
    return pixels, [mistyped(own[n], rng) for n in said], said == np.arange(len(rows))


def mistyped(text: str, rng: np.random.Generator) -> str:
    """Exchange two neighbouring letters in about half of the texts."""
    at = int(rng.integers(len(text) - 1))
    return text if rng.random() < 0.5 else f"{text[:at]}{text[at + 1]}{text[at]}{text[at + 2 :]}"


def main() -> None:
    """Embed the world by both CLIPs, train on every selection, print the table and write the result."""
    options = parser(__doc__)
    options.add_argument("--documents", type=int, default=420)
    options.add_argument("--seeds", type=int, default=8)
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pixels, texts, is_right = world_pairs(Path(folder) / "world", args.documents)
        save_clip(Path(folder) / "judge")
        of_judge, of_filter = (Clip(spec) for spec in (f"open_clip:local-dir:{folder}/judge", FILTER))
        cosines = (of_filter.embed_images(pixels) * of_filter.embed_texts(texts)).sum(1)
        vectors = centred(of_judge.embed_images(pixels))
        features = (vectors, centred(of_judge.embed_texts(texts)))
    n = len(pixels)
    raw, kinds = np.stack([np.arange(n)] * 2, 1), kinds_of(vectors)
    pool = Pool(features, kinds, raw, raw[is_right])
    arms = {"raw": raw, "filter": raw[np.argsort(-cosines)[: n // 2]], "oracle": raw[is_right]}
    found = []
    for seed in range(args.seeds):
        every = arms | {"random": random_arm(raw, n // 2, seed)}
        least = min(map(len, every.values()))
        found.append(recalls(pool, every, {"seen": np.ones(kinds.max() + 1, bool)}, seed, least))
    rows = []
    for arm in ("raw", "random", "filter", "oracle"):
        for held in (UNSEEN, "seen"):
            gain = difference([each[arm][held] - each["raw"][held] for each in found])
            note = "" if arm == "raw" else f"{gain.mean:+.3f} ± {gain.half:.3f} to raw"
            rows.append(
                Row(f"{arm}, {held} kinds", "R@5", float(np.mean([each[arm][held] for each in found])), note=note)
            )
    print(f"{n:,} pairs, {is_right.sum():,} right, {is_right[arms['filter'][:, 0]].mean():.2f} of the filter's")
    finish("prove_world", rows, args, pairs=n)


if __name__ == "__main__":
    main()
