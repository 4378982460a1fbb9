"""Score sentences by words, entropy, URL, emoji, boilerplate and language."""

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import regex

from pairmill.ops.batch import Batch
from pairmill.ops.text.words import RUN

# Runs with inner apostrophes and hyphens: "don't" and "well-known" are one word each.
WORD = regex.compile(rf"{RUN}(?:['’\-]{RUN})*")

# Every repeat is bounded, so that a megabyte of "a.a.a." takes linear time.
URL = re.compile(
    r"https?://\S|\bwww\.\w|\b[\w.+-]{1,64}@[\w-]{1,64}\.\w{2}"  # e-mail counts
    r"|\b(?:[a-z0-9-]{1,63}\.){1,6}(?:com|org|net|edu|gov|io|info|biz|co\.uk|de|fr|ru|ly|html?|php)\b(?!\.\w)",
    re.IGNORECASE,
)

# Unicode's Emoji characters and the blocks reserved for new ones, without the signs that occur in plain text (©, ™,
# arrows, check marks, ♀): these signs, and keycaps, count only before U+FE0F, which requests the emoji form.
EMOJI = re.compile(
    "[\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f\U0001f170-\U0001f171\U0001f17e-\U0001f17f\U0001f18e\U0001f191-\U0001f19a"
    "\U0001f1e6-\U0001f64f\U0001f680-\U0001f6ff\U0001f774-\U0001f77f\U0001f7d5-\U0001f7ff\U0001f80c-\U0001f80f"
    "\U0001f900-\U0001faff\U0001fc00-\U0001fffd\u231a\u231b\u2328\u23cf\u23e9-\u23f3\u23f8-\u23fa\u25fd\u25fe"
    "\u2600-\u2604\u260e\u2614\u2615\u2618\u261d\u2620\u2622\u2623\u2626\u262a\u262e\u262f\u2638-\u263a\u2648-\u2653"
    "\u265f\u2660\u2663\u2665\u2666\u2668\u267b\u267e\u267f\u2692-\u2697\u2699\u269b\u269c\u26a0\u26a1\u26a7\u26aa\u26ab"
    "\u26b0\u26b1\u26bd\u26be\u26c4\u26c5\u26c8\u26ce\u26cf\u26d1\u26d3\u26d4\u26e9\u26ea\u26f0-\u26f5\u26f7-\u26fa\u26fd"
    "\u2702\u2705\u2708-\u270d\u270f\u2712\u271d\u2721\u2728\u2744\u274c\u274e\u2753-\u2755\u2757\u2763\u2764\u2795-\u2797"
    "\u27b0\u27bf\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299\u20e3\ufe0f]"
)

# A link begins a sentence or follows a sign, such as a bar: no word or comma, no opening quotation mark after one.
BEGINS = r"(?:(?<![\w,;] )(?<![\w'’-])(?<![\w,;:] [\"“«‘'(])|(?<=please )|(?<=please, )|(?<=simply )|(?<=just ))"


def _boilerplate() -> re.Pattern[str]:
    """Compile the phrases of boilerplate.txt beside this file, with notices of copyright and a page's own buttons."""
    named: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / "boilerplate.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, pattern = line.partition(" ")
            for each in ("<end>", "<terms>", "<network>"):
                pattern = pattern.replace(each, "".join(named.get(each, ())))
            named.setdefault(name, []).append(pattern)
    return re.compile(
        rf"\b(?:{'|'.join(named['phrase'])}|{BEGINS}(?:{'|'.join(named['link'])}))"
        rf"|©\s{{0,3}}\d{{4}}|\(c\)\s{{0,3}}(?:19|20)\d\d"
        rf"|^\W{{0,9}}(?:(?:©|\(c\)|copyright\b)\W{{0,9}}(?:\d{{4}}|by\b)"
        rf"|(?:(?:log|sign) ?(?:in|out|up)|advertisements?){named['<end>'][0]})",
        re.IGNORECASE,
    )


BOILERPLATE = _boilerplate()

# In characters. Time grows with the length, and more characters do not change the result.
ENOUGH = 300
LETTER = re.compile(r"[^\W\d_]")
# The 40 languages of most web pages, and zxx for text in no language (numbers, random keys). The model's rare languages
# attract short sentences: 93 % of English fragments of four words were English with all 140, 97 % with these.
EUROPE = "bg ca cs da de el en es et fi fr hr hu it lt lv nl no pl pt ro ru sk sl sr sv tr uk"
LANGUAGES = f"{EUROPE} ar bn fa he hi id ja ko ms th vi zh zxx"


@dataclass(frozen=True)
class SentenceQuality:
    """Read ``text`` (list of sentences); add one column for each score.

    ``n_words``: words; "don't" is one. ``text_entropy``: Shannon entropy of the sentence's words in bits, from 0 to
    log2(n_words): 0 for one repeated word, 3 for 8 different words. RealSyn's minimum (arXiv 2502.12513) is for another
    entropy, by the words' shares of the whole corpus: ``corpus_entropy``.
    ``has_url``: has a web address, with or without http, or an e-mail address. ``has_emoji``: has an emoji.
    ``is_boilerplate``: has a phrase of site boilerplate (cookies, subscribe, share, copyright, …), English only.
    ``language``: ISO 639-1 code by py3langid, unreliable under some five words.
    """

    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with one column added for each score."""
        texts: list[str] = batch["text"]
        words = [WORD.findall(text) for text in texts]
        return batch | {
            "n_words": [len(found) for found in words],
            "text_entropy": [text_entropy(found) for found in words],
            "has_url": [URL.search(text) is not None for text in texts],
            "has_emoji": [EMOJI.search(text) is not None for text in texts],
            "is_boilerplate": [BOILERPLATE.search(text) is not None for text in texts],
            "language": [language_of(text) for text in texts],
        }


def text_entropy(words: list[str]) -> float:
    """Compute the Shannon entropy of the casefolded words in bits, rounded to 4 decimals; 0 without words."""
    counts = Counter(word.casefold() for word in words)
    total = sum(counts.values())
    entropy = -sum(count / total * math.log2(count / total) for count in sorted(counts.values()))
    return round(entropy, 4) + 0.0  # -0.0 of a single word becomes 0.0


def language_of(text: str) -> str:
    """Identify a text's language from its first 300 characters: an ISO 639 code of LANGUAGES; 'und' without a letter.

    99 of 100 English sentences of six words are identified correctly, but only 3 of 4 sentences of two words: a rule on
    the language should exempt the shortest. A language outside the list is identified as a related language.
    """
    text = text[:ENOUGH]
    return _identifier().classify(text)[0] if LETTER.search(text) else "und"


@cache
def _identifier() -> Any:
    """Load the model that py3langid ships (1.2 MB); it returns the best label without probabilities."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages(LANGUAGES.split())
    return identifier
