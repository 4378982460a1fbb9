"""Generate small demo worlds and the smallest models, each once a test run."""

import subprocess
import sys
from pathlib import Path

from tests.worlds.shared import made_once

# Overrides of the demo recipe by which a run takes 2 CPU s instead of 8: no text, cluster or duplicate is asked for.
PICTURES_ALONE = {
    "images": "[{name: short_side, keep: 'least(width, height) >= 64'}]",
    "association": "none",
    "duplicates": "none",
    "balance.cap": "none",
    "tags": "null",
    "fuse": "null",
}
ROOT = Path(__file__).resolve().parents[2]


def generate(out: Path, seed: int, documents: int) -> Path:
    """Generate a demo world under ``out``; return the folder of its pages."""
    command = [sys.executable, ROOT / "infra/demo/generate.py", "--seed", seed, "--documents", documents, "--out", out]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    return out / "pages"


def world(seed: int, documents: int) -> Path:
    """Return the pages of a generated world, shared by all tests of the run."""
    return made_once(f"world-{seed}-{documents}", lambda place: generate(place, seed, documents)) / "pages"


def pages() -> Path:
    """Return the pages of the world of most test lakes: 18 documents, some 90 images."""
    return world(seed=13, documents=18)


def small_settings() -> dict[str, str]:
    """Return overrides of the demo recipe: random models, nine shards of two documents, six clusters, few tokens."""
    return {
        "models.clip": f"open_clip:local-dir:{made_once('clip', _save_clip)}",
        "models.captioner": f"hf:{made_once('vlm', _save_vlm)}",
        "ingest.documents_per_shard": "2",
        "duplicates.per_cluster": "10",
        "balance.per_cluster": "10",
        "duplicates.cosine": "0.99999",
        "captioners.0.max_tokens": "4",
        "captioners.0.side": "64",
        "images.pair_similarity.keep": "synthetic_similarity >= -1",
        "images.whole_text.keep": "true",
        "fuse.model": "captioner",
        "fuse.max_tokens": "4",
        "fuse.side": "64",
        "decoding.side": "64",
        "association.max_uses": "1000",
    }


def _save_clip(folder: Path) -> None:
    from tests.worlds.tiny import save_clip

    save_clip(folder)


def _save_vlm(folder: Path) -> None:
    from tests.worlds.tiny_vlm import save_vlm

    save_vlm(folder, "idefics3")
