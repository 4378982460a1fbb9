"""Write training texts: a concept's name among random English words, so that a model finds the name anywhere.

Six fixed sentence shapes did not generalise to unseen ones; random surroundings do. The words come from the vocabulary
of CLIP's own tokenizer, which open_clip ships.
"""

import gzip
import random
from pathlib import Path

_FUNCTION = """the a of and to in is was for on with at by from that this it as an be are were had has have not but or which who when
where while his her their our my its one all some no any each other more most very only then so after before under over
into about between through during without against he she they we you i if because although never always often still once
again"""
FUNCTION = _FUNCTION.split()
GROUNDS = [
    "on a {p} {c} background", "on {c}", "against {c} {p} paper", "in front of a {c} wall", "with a {p} backdrop",
    "over something {c}", "on a {c} background", "set on {p} {c}", "before a {c} {p} curtain", "with {c} behind it",
]  # fmt: skip
LEADS = [
    "",
    "",
    "",
    "a ",
    "the ",
    "the ",
    "a picture of a ",
    "an image of the ",
    "one ",
    "this ",
    "my ",
    "icon of ",
    "her ",
    "every ",
]
SIZES = {True: ["large", "big", "huge"], False: ["small", "little", "tiny"]}


def vocabulary(concept_names: list[str]) -> list[str]:
    """Return some 20,000 lower-case English words, frequent ones first, without the concepts' names."""
    import open_clip

    file = Path(open_clip.__file__).parent / "bpe_simple_vocab_16e6.txt.gz"
    merges = gzip.decompress(file.read_bytes()).decode().split("\n")[1:48895]
    words = ["".join(merge.split()).removesuffix("</w>") for merge in merges if merge.endswith("</w>")]
    barred = set(concept_names)
    return [word for word in words if len(word) >= 3 and word.isascii() and word.isalpha() and word not in barred]


class Wording:
    """Random texts from one ``random.Random``; ``words`` is the result of ``vocabulary``."""

    def __init__(self, words: list[str], seed: int):
        self.words, self.rng = words, random.Random(seed)

    def filler(self, most: int) -> list[str]:
        """Return 0 to ``most`` words: about half function words, some numbers and commas, frequent words more often."""
        rng, out = self.rng, []
        for _ in range(rng.randint(0, most)):
            draw = rng.random()
            if draw < 0.45:
                out.append(rng.choice(FUNCTION))
            elif draw < 0.48:
                out.append(str(rng.randint(1, 2030)))
            else:
                out.append(self.words[int(len(self.words) * rng.random() ** 2.2)])
            if rng.random() < 0.05:
                out[-1] += ","
        return out

    def phrase(self, name: str, pattern: str, colour: str, large: bool) -> str:
        """Return the name, sometimes with an article, its size or its background."""
        rng = self.rng
        size = rng.choice(SIZES[large]) + " " if rng.random() < 0.25 else ""
        word = self.words[int(len(self.words) * rng.random() ** 2.2)] + " " if rng.random() < 0.1 else ""
        lead = rng.choice(LEADS)
        text = lead + size + word + name
        if lead == "a " and text[2] in "aeiou":
            text = "an " + text[2:]
        if rng.random() < 0.35:
            text += " " + rng.choice(GROUNDS).format(p=pattern, c=colour)
        return text

    def closed(self, words: str) -> str:
        """Capitalise the words and add a closing mark, most of the time."""
        rng = self.rng
        words = words[:1].upper() + words[1:] if rng.random() < 0.8 else words
        return words.rstrip(",") + rng.choice([".", ".", ".", "", "!", "?"])

    def about(self, name: str, pattern: str, colour: str, large: bool) -> str:
        """Return a pseudo sentence with the name at a random place; one in eight is the bare phrase."""
        phrase = self.phrase(name, pattern, colour, large)
        if self.rng.random() < 0.12:
            return phrase
        joint = "," if self.rng.random() < 0.12 else ""
        return self.closed(" ".join([*self.filler(14), phrase + joint, *self.filler(14)]))

    def nothing(self) -> str:
        """Return a pseudo sentence that names no concept."""
        return self.closed(" ".join(self.filler(20) + self.filler(6)) or "nothing")
