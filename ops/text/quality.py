"""Sentence scores: length, information, URL, emoji, boilerplate, language."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from ops.batch import Batch
from ops.text.language import language_of

# Letters, digits and marks, with apostrophes and hyphens inside: "don't" and "well-known" are one word each.
WORD = re.compile(r"\w+(?:['’\-]\w+)*")

# Every repeat has a bound, so that a megabyte of "a.a.a." costs no more than its length.
URL = re.compile(
    r"https?://\S|\bwww\.\w|\b[\w.+-]{1,64}@[\w-]{1,64}\.\w{2}"  # e-mail counts
    r"|\b(?:[a-z0-9-]{1,63}\.){1,6}(?:com|org|net|edu|gov|io|info|biz|co\.uk|de|fr|ru|ly|html?|php)\b(?!\.\w)",
    re.IGNORECASE,
)

# Blocks in which a character is drawn as a picture by default, and the marks that make or join such pictures. Plain
# text signs (©, ™, arrows, digits) count only when followed by U+FE0F, which asks for the picture.
EMOJI = re.compile(
    "[\U0001f000-\U0001faff\U0001fc00-\U0001fffd\u231a\u231b\u23e9-\u23f3\u25fd\u25fe\u2614\u2615\u2648-\u2653\u267f"
    "\u2693\u26a1\u26aa\u26ab\u26bd\u26be\u26c4\u26c5\u26ce\u26d4\u26ea\u26f2\u26f3\u26f5\u26fa\u26fd\u2705\u270a\u270b"
    "\u2728\u274c\u274e\u2753-\u2755\u2757\u2763\u2764\u2795-\u2797\u27b0\u27bf\u2b1b\u2b1c\u2b50\u2b55\u20e3\ufe0f]"
)

# What pages say about themselves. Each is a phrase that hardly stands in a sentence about something else.
BOILERPLATE = re.compile(
    "|".join(
        (
            r"\bcookies?\b.{0,40}\b(?:polic|consent|settings|use|accept|site|experience)",  # cookie notices
            r"\b(?:use|uses|using|accept|consent to)\b.{0,30}\bcookies\b",
            r"\ball rights reserved\b|^\W*(?:©|\(c\)|copyright\b)\W*(?:\d{4}|by\b)|\b(?:©|\(c\)|copyright)\s*\d{4}",
            r"\b(?:terms of (?:use|service)|terms (?:and|&) conditions|privacy (?:policy|notice|statement))\b",
            r"\bsubscribe (?:to|now|today|for|here)\b|\bunsubscribe\b|\bsign up (?:for|to|now|today|here)\b",
            r"\b(?:our|the|weekly|free) newsletter\b",
            r"\bshare (?:this|on|via|to)\b.{0,30}\b(?:post|page|article|facebook|twitter|pinterest|whatsapp|email)\b",
            r"\b(?:follow|like|find) us on\b|\btweet this\b|\bpin it\b",
            r"\b(?:log|sign) ?in (?:to|or|with|here|now)\b|^\W*(?:log|sign) ?(?:in|out|up)\W*$",
            r"\bforgot (?:your )?password\b",
            r"\bclick (?:here|the (?:link|button|image)|on the|below|to (?:enlarge|view|read|see|zoom))\b",
            r"\b(?:read|view|show|load|see|learn) (?:more|all|less)\W*$|\bcontinue reading\b",
            r"\bback to top\b|\bskip to (?:main )?content\b",
            r"\b(?:leave a (?:comment|reply)|no comments(?: yet)?|add (?:a )?comment|post a comment)\b",
            r"\b(?:add to (?:cart|basket|wishlist)|buy now|free shipping|in stock|out of stock)\b",
            r"\benable javascript\b|\bjavascript (?:is|must be) (?:disabled|enabled)\b",
            r"\byour browser (?:does not|doesn't|is)\b",
            r"\b(?:posted|published|last (?:updated|modified|edited)|filed) (?:by|on|in|under|at)\b.{0,40}$",
            r"\b(?:previous|next|related|recent|older|newer) (?:post|posts|article|articles|page|entry)\b",
            r"\bpowered by \w+|\badvertisement\b|\bsponsored (?:content|post|links?)\b",
        )
    ),
    re.IGNORECASE,
)


@dataclass(frozen=True)
class SentenceQuality:
    """Read ``text`` (list of sentences); add one column a score:

    ``n_words`` words, "don't" being one. ``text_entropy`` Shannon entropy of the words of the sentence in bits, from 0
    to log2(n_words): 0 for one word said often, 3 for 8 different words; RealSyn (arXiv 2502.12513) asks for a floor
    on it. ``has_url`` an address with or without http, e-mail too. ``has_emoji``. ``is_boilerplate`` a phrase that
    pages say about themselves (cookies, subscribe, share, copyright, …), English only. ``language`` ISO 639-1, by
    py3langid: a guess on fewer than some five words.
    """

    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
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
    """-sum p log2 p over the shares p of the distinct words, casefolded; bits, 4 decimals; 0 for no word."""
    counts = Counter(word.casefold() for word in words)
    total = sum(counts.values())
    entropy = -sum(count / total * math.log2(count / total) for count in sorted(counts.values()))
    return round(entropy, 4) + 0.0  # -0.0 of a single word becomes 0.0
