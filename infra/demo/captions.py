"""Define the demo captioner's training prompts and answers."""

from wording import Wording

DESCRIBE = [
    "Describe the picture.",
    "Describe the picture.",
    "Describe this image.",
    "Describe the image in one sentence.",
    "What does the picture show?",
]
FUSE = [
    "Combine into one description. Caption: {caption} Tags: {tags} Text: {sentence}",
    "Combine into one description. Caption: {caption} Tags: {tags} Text: {sentence}",
    "Combine the caption, the tags and the text into one description.\nCaption: {caption}\nTags: {tags}\nText: {sentence}",
]


def is_plural(name: str) -> bool:
    """Return whether a name takes no ``a``: books, but neither bus nor dress."""
    return name.endswith("s") and not name.endswith(("ss", "us", "is"))


def caption(name: str, pattern: str, colour: str, large: bool) -> str:
    """Return a caption, for example 'A large butterfly on a striped yellow background'."""
    lead = "" if is_plural(name) else "A "
    text = f"{lead}{'large' if large else 'small'} {name} on a {pattern} {colour} background."
    return text[0].upper() + text[1:]


def sign_caption(phrase: str) -> str:
    """Return a caption, for example 'A sign that says Closed on Mondays'."""
    return f"A sign that says {phrase}."


def lowered(text: str) -> str:
    """Remove the closing mark and lower the first letter."""
    text = text.strip().rstrip(".!?,")
    return text[:1].lower() + text[1:]


def fused(sentence: str, said: str) -> str:
    """Return the sentence followed by the caption.

    For example ``Clara drew the owl, shown here as a small owl on a plain red background.``
    """
    return f"{sentence.strip().rstrip('.!?,')}, shown here as {lowered(said)}."


def exercise(
    wording: Wording, concept_names: list[str], name: str, pattern: str, colour: str, large: bool, sign: str = ""
) -> tuple[str, str]:
    """Return a random fuse prompt and its answer.

    The text may not name the concept, and the tags may be wrong or missing. With a ``sign`` the caption is of a picture
    of that phrase.
    """
    rng = wording.rng
    said = sign_caption(sign) if sign else caption(name, pattern, colour, large)
    tags = [name] * (rng.random() < 0.85) + rng.sample(concept_names, rng.randint(0, 4))
    if rng.random() < 0.15:
        rng.shuffle(tags)
    draw = rng.random()
    if draw < 0.7:
        sentence = wording.about(name, pattern, colour, large)
    elif draw < 0.85:
        sentence = wording.nothing()
    else:
        sentence = wording.about(rng.choice(concept_names), pattern, rng.choice(["red", "blue", "green"]), not large)
    sentence = " ".join(word.capitalize() if rng.random() < 0.06 else word for word in sentence.split(" "))
    sentence = " ".join(sentence.split()[:28]) if len(sentence) > 160 else sentence
    prompt = rng.choice(FUSE).format(caption=said, tags=", ".join(tags), sentence=sentence)
    return prompt, fused(sentence, said)
