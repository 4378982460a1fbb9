"""Score sentences by the information entropy that RealSyn filters by, over word probabilities of the whole corpus.

theta(x) = -sum p(x_i) log2 p(x_i) over every occurrence of a word in the sentence, p being the word's share of all
words of the corpus (arXiv 2502.12513v3, section 3.2; kept at >= 0.3). It is large for a sentence of many common words,
near 0 for one of few or of rare ones: names, numbers, codes, menus. The paper gives no base of the logarithm. Here it
is 2: with natural logarithms 37 % of the sentences of two manuals (13,030 that pass the rules before) fall at 0.3, more
than entropy and perplexity drop together in the paper (36 %), with base 2 it is 29 %; and DanQing, which says that it
follows RealSyn, writes log2.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from pairmill.ops.batch import Batch

if TYPE_CHECKING:
    from nltk.tokenize.destructive import NLTKWordTokenizer

COUNT_VERSION = 1  # counts up when texts are divided into other words, or these get other shares
# A rarer word adds less than 1e-7 * log2(1e7) = 2.3e-6: a sentence of 81 of them is short of 2e-4 at most.
RAREST = 1e-7
# What is counted of a sentence, in characters: some 800 words, ten times what the rule on length lets pass.
LONGEST = 5000


@dataclass(frozen=True)
class CorpusEntropy:
    """Read ``text`` (list of sentences); add ``corpus_entropy`` in bits, >= 0 (0 for no known word), 4 decimals.

    ``probabilities`` maps words to their shares of the corpus, in (0, 1]; a word that it lacks adds nothing.
    ``folded``: its words are in lower case, and so are the sentences' before they are looked up.
    """

    probabilities: Mapping[str, float] = field(repr=False, hash=False)
    folded: bool = False
    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        return batch | {"corpus_entropy": [self._entropy(text) for text in batch["text"]]}

    def _entropy(self, text: str) -> float:
        shares = self.probabilities
        found = (shares.get(word) for word in words(text.lower() if self.folded else text))
        return round(math.fsum(-p * math.log2(p) for p in found if p), 4) + 0.0  # no -0.0 where p is 1


def words(text: str) -> list[str]:
    """Split a sentence into words as NLTK's word tokeniser does, punctuation marks being words; case stays.

    Of a text beyond LONGEST characters only those before are looked at.
    """
    return _tokeniser().tokenize(text[:LONGEST])


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count every occurrence of every word in ``texts``."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words(text))
    return counts


@cache
def _tokeniser() -> NLTKWordTokenizer:
    # 1.5 CPU seconds to import, which only the workers that count need pay. Its rules are regular expressions: no data.
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer()
