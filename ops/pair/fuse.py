"""Fill the prompt that asks a model to fuse a caption, tags and a real sentence into one text."""

import re
from collections.abc import Sequence
from string import Formatter

VERSION = 2  # increase when the same texts give another prompt, rare ones aside
FIELDS = ("caption", "tags", "sentence")
# Positions at which a template may be split: after a line break, after the end of a sentence, and between a field and
# the next label ("{caption} Tags: {tags}").
ENDS = re.compile(r"(?<=\n)|(?<=[.!?;]\s)|(?<=\}\s)(?=[^{}.!?;\n]*:\s*\{\w+\})")


def check_template(template: str) -> None:
    """Raise ValueError, with the remedy, unless a template has a plain field {caption}, {tags} or {sentence}."""
    remedy = "write {caption}, {tags} or {sentence}, and {{ }} for braces"
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"fuse prompt: {error}; {remedy}") from error
    names = [(name, form, conversion) for _, name, form, conversion in parts if name is not None]
    for name, form, conversion in names:
        if name not in FIELDS or form or conversion:  # rejects '{caption.__class__}' and '{caption!r:>9}'
            raise ValueError(f"fuse prompt: '{{{name}}}' is not a field; {remedy}")
    if not names:
        raise ValueError(f"fuse prompt: it uses none of the texts, so every answer would be the same; {remedy}")


def fuse_prompt(template: str, caption: str, tags: Sequence[str], sentence: str) -> str:
    """Return ``template`` filled with the texts; tags are joined by ', '. Raises as `check_template`.

    Braces in texts stay. A line, a sentence or a labelled field ("Tags: {tags}") is dropped if all of its fields are
    empty, because a bare "Tags: " makes a model invent some.
    """
    check_template(template)
    texts = {"caption": caption.strip(), "tags": ", ".join(tags), "sentence": sentence.strip()}
    parts = ENDS.split(template)
    fields = [[name for _, name, _, _ in Formatter().parse(part) if name is not None] for part in parts]
    kept = [part for part, names in zip(parts, fields, strict=True) if not names or any(map(texts.get, names))]
    filled = "".join(part.format(**texts) for part in kept)
    return filled if len(kept) == len(parts) else filled.rstrip()


def instructions(template: str) -> tuple[str, ...]:
    """Return the literal parts of ``template`` between its fields, without blank ones."""
    return tuple(literal for literal, _, _, _ in Formatter().parse(template) if literal.strip())
