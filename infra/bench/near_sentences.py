"""Benchmark the search for near-equal sentences in a lake by MinHash, against comparing all; growth; signatures.

Run as ``python -m infra.bench.near_sentences [--sentences N]``. Sentences consist of random words with the frequencies
of a language (Zipf). One in four is a copy of another with a word or a letter changed, added or removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import scipy.sparse

from infra.bench.measure import Row, cpu, exponent, finish, interleaved, parser, peak_mb, ratio
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.duplicate_edges import near_candidates
from pairmill.ops.text.minhash import BANDS, SentenceSignature, grams, jaccard
from pairmill.ops.whole.hamming import near_in_order

JACCARD = 0.8
COMPARED = 10_000  # number of sentences for the exact comparison, whose cost grows with the square
# Letters with about their frequencies in English, after Norvig's counts of 2012.
LETTERS = "e" * 12 + "t" * 9 + "ao" * 8 + "in" * 7 + "srh" * 6 + "ld" * 4 + "cum" * 3 + "fpgwyb" * 2 + "vkxjqz"


def sentences(n: int, seed: int = 0) -> list[str]:
    """Make ``n`` sentences of 5 to 25 words, without exact duplicates."""
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list(LETTERS), rng.integers(2, 11))) for _ in range(20_000)]
    lengths = rng.integers(5, 26, n)
    shares = 1 / np.arange(1, len(words) + 1)
    drawn = np.split(rng.choice(len(words), lengths.sum(), p=shares / shares.sum()), np.cumsum(lengths)[:-1])
    found: list[str] = []
    for row, of in enumerate(drawn):
        said = found[rng.integers(row)].split() if row and row % 4 == 0 else [words[rank] for rank in of]
        if row and row % 4 == 0:
            at = int(rng.integers(len(said)))
            word = words[int(rng.integers(len(words)))]
            said[at] = (word, said[at][:-1] or word, f"{said[at]} {word}", f"{said[at]}s")[row // 4 % 4]
        found.append(" ".join(said))
    return list(dict.fromkeys(found))


def near(lake: Lake) -> set[tuple[str, str]]:
    """Find the near-equal pairs of a lake's signed sentences, as the pipeline does."""
    found = set()
    for block in near_candidates(lake, "signed", -1, JACCARD, BANDS, near_in_order):
        left, right = block["left"].to_pylist(), block["right"].to_pylist()
        for row in np.flatnonzero(jaccard(left, right) >= JACCARD):
            found.add((left[row], right[row]))
    return found


def exact(texts: list[str]) -> set[tuple[int, int]]:
    """Find near-equal pairs by comparing all with all.

    Counts of common 3-grams are products of a sparse matrix with itself.
    """
    numbers: dict[str, int] = {}
    sets = [[numbers.setdefault(gram, len(numbers)) for gram in grams(text)] for text in texts]
    sizes = np.array([len(each) for each in sets])
    starts = np.concatenate(([0], np.cumsum(sizes)))
    held = scipy.sparse.csr_matrix((np.ones(starts[-1], np.int32), np.concatenate(sets), starts))
    found = set()
    for start in range(0, len(texts), 500):
        common = (held[start : start + 500] @ held.T).tocoo()
        left, right = common.row + start, common.col
        alike = (common.data >= JACCARD * (sizes[left] + sizes[right] - common.data)) & (left < right)
        found |= set(zip(left[alike].tolist(), right[alike].tolist(), strict=True))
    return found


def filled(folder: Path, texts: list[str]) -> Lake:
    """Make a lake with these sentences and their signatures only."""
    lake = create_or_open(folder)
    for rows in _blocks(texts):
        lake.insert("sentence_content", rows.select(["content", "text", "commit"]))
        lake.insert("sentence_signature", rows.drop_columns(["text"]))
    return lake


def _blocks(texts: list[str]) -> Iterator[pa.Table]:
    """Yield tables of 20,000 sentences with ids and signatures."""
    for start in range(0, len(texts), 20_000):
        part = texts[start : start + 20_000]
        signed = SentenceSignature()({"text": part})
        named = {
            "content": [hashlib.sha256(text.encode()).hexdigest()[:32] for text in part],
            "scorer": ["signed"] * len(part),
        }
        yield pa.table({**named, **signed, "commit": np.zeros(len(part), np.int64)})


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    options.add_argument("--sentences", type=int, default=50_000)
    options = options.parse_args()
    sizes = [options.sentences, 3 * options.sentences, 9 * options.sentences]
    texts = sentences(sizes[-1])
    few = texts[:COMPARED]
    truth: set[tuple[int, int]] = set()
    found: set[tuple[str, str]] = set()
    with TemporaryDirectory() as folder:
        lakes = {n: filled(Path(folder) / str(n), texts[:n]) for n in (COMPARED, *sizes)}
        both = interleaved(
            {
                "sign": lambda: SentenceSignature()({"text": few}),
                "ours": lambda: (SentenceSignature()({"text": few}), found.update(near(lakes[COMPARED]))),
                "twin": lambda: truth.update(exact(few)),
            },
            options.rounds,
        )
        grown = interleaved({str(n): lambda n=n: near(lakes[n]) for n in sizes}, max(1, options.rounds - 1))
        for lake in lakes.values():
            lake.close()
    met = sum((few[i], few[j]) in found or (few[j], few[i]) in found for i, j in truth)
    seconds = [cpu(each) for each in grown.values()]
    # Signing is part of the search: it is done once a sentence.
    signed = cpu(both["sign"]) / len(few)
    rows = [
        Row(
            f"near-equal pairs of {len(few)} sentences",
            "sentences/CPU s",
            len(few) / cpu(both["ours"]),
            len(few) / cpu(both["twin"]),
            "all compared",
            ratio(both["twin"], both["ours"]),
            recall=met / max(1, len(truth)),
            target="recall >= 0.99",
            met=met >= 0.99 * len(truth),
            note=f"{len(truth)} pairs at {JACCARD}; the twin grows with the square",
        ),
        Row(
            f"near-equal pairs of {sizes[-1]} sentences",
            "sentences/CPU s",
            sizes[-1] / (seconds[-1] + sizes[-1] * signed),
            target="exponent <= 1.1",
            met=exponent(sizes, seconds) <= 1.1,
            note=f"exponent {exponent(sizes, seconds):.2f} from {sizes[0]} on",
        ),
        Row("sentences to signatures", "sentences/CPU s", 1 / signed),
    ]
    finish("near_sentences", rows, options, sizes=sizes, cpu_seconds=seconds, peak_mb=round(peak_mb()))


if __name__ == "__main__":
    main()
