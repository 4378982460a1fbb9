"""Spoil English sentences, or write nonsense, as input for text filters."""

import string

import numpy as np

COMMON = ("the", "a", "and", "very", "old", "house", "picture", "day", "people", "water", "good", "walk")
ONSETS = [
    "b",
    "bl",
    "br",
    "c",
    "ch",
    "d",
    "dr",
    "f",
    "fl",
    "g",
    "gl",
    "gr",
    "h",
    "j",
    "k",
    "kl",
    "l",
    "m",
    "n",
    "p",
    "pl",
    "pr",
    "qu",
    "r",
    "s",
    "sk",
    "sl",
    "st",
    "t",
    "th",
    "tr",
    "v",
    "vl",
    "w",
    "x",
    "y",
    "z",
    "zh",
]
VOWELS = ["a", "e", "i", "o", "u", "ae", "ai", "ea", "ee", "ei", "oa", "oo", "ou", "uu", "yo"]
CODAS = [
    "b",
    "ck",
    "d",
    "ff",
    "g",
    "k",
    "lm",
    "lt",
    "m",
    "nd",
    "ng",
    "nk",
    "p",
    "rk",
    "rm",
    "rn",
    "rsk",
    "s",
    "sh",
    "sk",
    "st",
    "t",
    "th",
    "v",
    "x",
    "zz",
]


def shuffled(rng: np.random.Generator, text: str) -> str:
    """Shuffle the words; the capital and the full stop keep their places."""
    words = text[0].lower() + text[1:-1]
    mixed = " ".join(rng.permutation(words.split(" ")))
    return mixed[0].upper() + mixed[1:] + text[-1]


def swapped(rng: np.random.Generator, text: str) -> str:
    """Swap two inner neighbouring letters in each word of four letters or more."""
    words = text.split(" ")
    for place, word in enumerate(words):
        if len(word) >= 4:
            at = int(rng.integers(1, len(word) - 2))
            words[place] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return " ".join(words)


def said_over(rng: np.random.Generator, text: str) -> str:
    """Repeat one word of the text, as often as the text has words."""
    words = text[:-1].split(" ")
    return " ".join([str(rng.choice(words))] * max(4, len(words)))


def phrase_over(rng: np.random.Generator, text: str) -> str:
    """Repeat three words of the text four times."""
    words = text[:-1].split(" ")
    at = int(rng.integers(0, max(1, len(words) - 3)))
    return " ".join(words[at : at + 3] * 4)


def common_over(rng: np.random.Generator) -> str:
    """Repeat a common word six to thirty times: a text that a language model finds too easy."""
    word = str(rng.choice(COMMON))
    return " ".join([word.capitalize(), *[word] * int(rng.integers(5, 30))]) + "."


def noise(rng: np.random.Generator) -> str:
    """Return four to nine words and part numbers that occur nowhere else: a text of low corpus entropy."""
    words = [_code(rng) if rng.random() < 0.3 else _pseudo_word(rng) for _ in range(int(rng.integers(4, 10)))]
    text = " ".join(words)
    return text[0].upper() + text[1:] + "."


def _pseudo_word(rng: np.random.Generator) -> str:
    """Return a pronounceable word of two or three syllables that is not English."""
    parts = [str(rng.choice(ONSETS)) + str(rng.choice(VOWELS)) for _ in range(int(rng.integers(2, 4)))]
    return "".join(parts) + str(rng.choice(CODAS))


def _code(rng: np.random.Generator) -> str:
    """Return a part number such as 'QX48213'."""
    letters = "".join(rng.choice(list(string.ascii_uppercase), 2))
    return f"{letters}{rng.integers(10_000, 10_000_000)}"


def near_copy(rng: np.random.Generator, text: str) -> str:
    """Return the sentence with a small difference: a mark, a capital, a blank or a few words."""
    draw, body = rng.random(), text[:-1]
    if draw < 0.35:
        return body + str(rng.choice(["!", " .", "...", ";"]))
    if draw < 0.6:
        return f"{rng.choice(['And', 'Also,', 'Indeed,', 'Then'])} {body[0].lower()}{body[1:]}{text[-1]}"
    if draw < 0.8:
        return f"{body}{rng.choice([' too', ', it is said', ' indeed', ' (see above)'])}{text[-1]}"
    return f'"{text}"'
