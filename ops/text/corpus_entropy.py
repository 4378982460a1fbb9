"""Score sentences by information entropy as RealSyn does, from word probabilities over the whole corpus.

theta(x) = -sum p(x_i) log2 p(x_i) over every occurrence of a word in the sentence, where p is the word's share of all
words of the corpus (arXiv 2502.12513v3, section 3.2; RealSyn keeps sentences at >= 0.3). The value is large for a
sentence of many common words, and near 0 for a sentence of few or rare words: names, numbers, codes, menus. The paper
does not state the base of the logarithm. Base 2 is used here: with natural logarithms 37 % of the sentences of two
manuals (13,030 that pass the earlier rules) fall at 0.3, more than entropy and perplexity drop together in the paper
(36 %); with base 2 it is 29 %. DanQing, which states that it follows RealSyn, writes log2.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from pairmill.ops.batch import Batch

if TYPE_CHECKING:
    from nltk.tokenize.destructive import NLTKWordTokenizer

COUNT_VERSION = 1  # increase when words are split otherwise or get other shares, rare ones aside
# A rarer word adds less than 1e-7 * log2(1e7) = 2.3e-6, so a sentence of 81 such words misses at most 2e-4.
RAREST = 1e-7
# Characters of a sentence that are scored: some 800 words, ten times what the rule on length accepts.
LONGEST = 5000


@dataclass(frozen=True)
class CorpusEntropy:
    """Read ``text`` (list of sentences); add ``corpus_entropy`` in bits, >= 0 (0 without a known word), 4 decimals.

    ``probabilities`` maps words to their shares of the corpus, in (0, 1]; a word without an entry adds nothing.
    """

    probabilities: Mapping[str, float] = field(repr=False, hash=False)
    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with the column ``corpus_entropy`` added."""
        entropies: list[float] = []
        for text in batch["text"]:
            shares = (self.probabilities.get(word) for word in words(text))
            entropy = math.fsum(-p * math.log2(p) for p in shares if p)
            entropies.append(round(entropy, 4) + 0.0)  # avoid -0.0 when p is 1
        return batch | {"corpus_entropy": entropies}


def words(text: str) -> list[str]:
    """Return the words of a text's first LONGEST characters by NLTK's rules; punctuation marks count, case is kept."""
    return _tokeniser().tokenize(text[:LONGEST])


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Return word -> number of its occurrences in ``texts``."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words(text))
    return counts


@cache
def _tokeniser() -> "NLTKWordTokenizer":
    """Create NLTK's word tokeniser, once per process.

    Its rules are regular expressions and need no data files. Importing NLTK as a whole imports SciPy, for 0.7 to 1.5
    CPU seconds. So its packages stand in as empty modules while the tokeniser's own module is imported, 0.03 s.
    """
    path = Path(next(iter(find_spec("nltk").submodule_search_locations)))  # pyright: ignore
    others = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "nltk"}
    for name, folder in (("nltk", path), ("nltk.tokenize", path / "tokenize")):
        if name not in others:
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__path__ = [str(folder)]
    try:
        return import_module("nltk.tokenize.destructive").NLTKWordTokenizer()
    finally:  # another importer gets the whole
        for name in [name for name in sys.modules if name.split(".")[0] == "nltk" and name not in others]:
            del sys.modules[name]
