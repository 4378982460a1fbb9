"""Measure the demo's language model on a world's sentences and on spoiled versions of them.

    .venv/bin/python -m infra.demo.measure_language --world infra/demo/world [--out infra/bench/results]

Prints quantiles of the perplexity by kind, and as one line of JSON the two thresholds with the fewest errors in sum.
The thresholds are fitted to garbled sentences and to texts that are certainly easy. A repeated word that the model
hardly knows is not such a text.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from infra.demo.spoiled import COMMON, phrase_over, said_over, shuffled, swapped
from pairmill.ops.models.language.perplexity import Perplexity

MODEL = Path(__file__).parent / "models" / "language"
GOOD = ("describes", "distractor")
QUANTILES = (0, 1, 5, 25, 50, 75, 95, 99, 100)


SPOILED = {"shuffled": shuffled, "swapped": swapped, "said over": said_over, "phrase over": phrase_over}
EASY = ("common word over", "boilerplate")


def measure(world: Path, model: Path, seed: int) -> dict[str, np.ndarray]:
    """Return the perplexities by kind of sentence: the world's own, then the spoiled ones."""
    rows = pq.read_table(world / "truth" / "sentences.parquet").to_pylist()
    texts: dict[str, list[str]] = {}
    for row in rows:
        texts.setdefault(row["kind"], []).append(row["text"])
    rng = np.random.default_rng(seed)
    good = [text for kind in GOOD for text in texts[kind] if len(text.split()) >= 4]
    texts |= {name: [spoil(rng, text) for text in good] for name, spoil in SPOILED.items()}
    texts["common word over"] = [" ".join([word] * n) for word in COMMON for n in range(4, 30)]
    score = Perplexity(f"hf:{model}")
    return {kind: score({"text": each})["perplexity"] for kind, each in texts.items()}


def thresholds(found: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the two thresholds with the fewest errors: good sentences dropped and spoiled ones kept, in equal shares."""
    good = np.concatenate([found[kind] for kind in GOOD])
    easy, garbled = (
        np.concatenate([found[kind] for kind in EASY]),
        np.concatenate([found["shuffled"], found["swapped"]]),
    )
    marks = np.exp(np.linspace(0, np.log(good.max()), 400))
    low = min(marks, key=lambda mark: (good < mark).mean() + (easy >= mark).mean())
    high = min(marks, key=lambda mark: (good > mark).mean() + (garbled <= mark).mean())
    kept = {kind: float(((values >= low) & (values <= high)).mean()) for kind, values in found.items()}
    return {"low": float(low), "high": float(high), "good kept": float(((good >= low) & (good <= high)).mean())} | {
        f"{kind} kept": share for kind, share in kept.items()
    }


def main() -> None:
    """Measure the model, print the quantiles and thresholds, and write them if ``--out`` is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder of the result file")
    args = parser.parse_args()
    found = measure(args.world, args.model, args.seed)
    spread = {
        kind: {"n": len(values)} | {f"q{q}": round(float(np.percentile(values, q)), 1) for q in QUANTILES}
        for kind, values in found.items()
    }
    for kind, quantiles in spread.items():
        print(kind, quantiles)
    report = {"quantiles": spread, "thresholds": {name: round(v, 4) for name, v in thresholds(found).items()}}
    if args.out:
        (args.out / "demo_language.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["thresholds"]))


if __name__ == "__main__":
    main()
