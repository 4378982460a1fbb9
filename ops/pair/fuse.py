"""Fill the prompt that asks a model to fuse a caption, tags and a real sentence into one text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import Formatter

VERSION = 2  # counts up when the same texts give another prompt
FIELDS = ("caption", "tags", "sentence")
# Where a template may be cut: behind a line break, behind the end of a sentence, and behind a field before the next
# label ("{caption} Tags: {tags}").
ENDS = re.compile(r"(?<=\n)|(?<=[.!?;]\s)|(?<=\}\s)(?=[^{}.!?;\n]*:\s*\{\w+\})")


def check_template(template: str) -> None:
    """Raise ValueError with the remedy unless ``template`` is text with plain {caption}, {tags}, {sentence} in it."""
    remedy = "write {caption}, {tags} or {sentence}, and {{ }} for braces"
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"fuse prompt: {error}; {remedy}") from error
    names = [(name, form, conversion) for _, name, form, conversion in parts if name is not None]
    for name, form, conversion in names:
        if name not in FIELDS or form or conversion:  # '{caption.__class__}' and '{caption!r:>9}' end here
            raise ValueError(f"fuse prompt: '{{{name}}}' is not a field; {remedy}")
    if not names:
        raise ValueError(f"fuse prompt: it uses none of the texts, so every answer would be the same; {remedy}")


def fuse_prompt(template: str, caption: str, tags: Sequence[str], sentence: str) -> str:
    """Fill ``template`` with the texts, tags joined by ', '; braces in the texts stay. Raises as `check_template`.

    A line, a sentence or a labelled field ("Tags: {tags}") is left out where all of its fields are empty: "Tags: " with
    nothing behind it asks a model to think of some.
    """
    check_template(template)
    texts = {"caption": caption.strip(), "tags": ", ".join(tags), "sentence": sentence.strip()}
    parts = ENDS.split(template)
    kept = [part for part in parts if _says_something(part, texts)]
    filled = "".join(part.format(**texts) for part in kept)
    return filled if len(kept) == len(parts) else filled.rstrip()


def instructions(template: str) -> tuple[str, ...]:
    """Return what ``template`` itself says, without its fields, a piece between any two of them."""
    return tuple(literal for literal, _, _, _ in Formatter().parse(template) if literal.strip())


def _says_something(part: str, texts: dict[str, str]) -> bool:
    fields = [name for _, name, _, _ in Formatter().parse(part) if name is not None]
    return not fields or any(texts[name] for name in fields)
