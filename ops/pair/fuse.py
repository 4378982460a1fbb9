"""Fill the prompt that asks a model to fuse a caption, tags and a real sentence into one text."""

from __future__ import annotations

from collections.abc import Sequence
from string import Formatter

VERSION = 1  # counts up when the same texts give another prompt
FIELDS = ("caption", "tags", "sentence")


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
    """Fill ``template`` with the texts, tags joined by ', '; braces in the texts stay. Raises as `check_template`."""
    check_template(template)
    return template.format(caption=caption.strip(), tags=", ".join(tags), sentence=sentence.strip())
