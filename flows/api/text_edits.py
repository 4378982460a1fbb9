"""Edit the texts of a dataset's pairs: preview an edit, store it."""

from dataclasses import dataclass
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset, find
from pairmill.catalog.queries.edit_preview import EditPreview, preview_edit
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError, did_you_mean
from pairmill.catalog.upkeep.taken_items import pictures_of
from pairmill.catalog.write import acts
from pairmill.flows.api.asked_item import find_item
from pairmill.flows.api.picture_acts import submit


@dataclass(frozen=True)
class TextEdit:
    """An edit of one ``field``, a column of pairs, by one of five kinds.

    ``find`` and ``regex`` need ``replace``; ``picture`` (an item as `pairmill why` takes it) needs ``text``, and so do
    ``pictures`` (sha256s) in its place; ``table`` is a file of new texts (`acts.prepare_table`); ``prefix`` begins
    every text.
    """

    field: str = "caption"
    find: str | None = None
    regex: str | None = None
    replace: str | None = None
    prefix: str | None = None
    table: str | None = None
    picture: str | None = None
    text: str | None = None
    pictures: tuple[str, ...] | None = None

    @property
    def kinds(self) -> list[str]:
        """The kinds that are given: exactly one, or the edit is not valid."""
        names = ("find", "regex", "prefix", "table", "picture", "pictures")
        return [name for name in names if getattr(self, name) is not None]


def preview_text_edit(lake: Lake, spec: str, edit: TextEdit) -> tuple[Dataset, EditPreview]:
    """Return the version that ``spec`` names, and what an edit would change in it.

    Raises PairmillError if the edit is not valid, or changes no pair.
    """
    dataset, kinds = find(lake, spec), edit.kinds
    if len(kinds) != 1:
        raise PairmillError("one edit at a time: find, regex, prefix, table or picture.")
    (kind,) = kinds
    names = text_columns.of_every_kind(dataset.n_texts)
    if edit.field not in names:
        remedy = did_you_mean(edit.field, names) or f"there are {', '.join(names)}."
        raise PairmillError(f"--field {edit.field}: no text of a pair; {remedy}")
    _prepare(lake, dataset, kind, edit)
    found = preview_edit(lake, dataset, edit.field)
    if not found.changed:
        has = "has this text already, or is in no pair"
        reasons = {"picture": f"the picture {has}", "pictures": f"each picture {has}", "table": "no text there is new"}
        why = reasons.get(kind, "case and spaces count, and earlier edits come first")
        raise PairmillError(f"--{kind} changes no {edit.field} of {dataset}: {why}. Nothing was stored.")
    return dataset, found


def edit_texts(lake: Lake, spec: str, edit: TextEdit) -> tuple[str, bool, Dataset, EditPreview]:
    """Store an edit; return its id, whether it waits for a run, and what `preview_text_edit` returns."""
    dataset, found = preview_text_edit(lake, spec, edit)
    return *submit(lake, dataset.name), dataset, found


def _prepare(lake: Lake, dataset: Dataset, kind: str, edit: TextEdit) -> None:
    """Prepare an edit in the lake's temporary tables. Raise PairmillError if a part is missing or not valid."""
    value = {"find": edit.replace, "regex": edit.replace, "prefix": edit.prefix, "picture": edit.text,
             "pictures": edit.text}.get(kind, "")  # fmt: skip
    if value is None:
        other = "text" if kind == "picture" else "replace"
        raise PairmillError(f"--{kind} needs --{other} TEXT; --{other} '' removes what it stands for.")
    if kind == "table":
        acts.prepare_table(lake, edit.field, Path(edit.table or ""))
    elif edit.pictures:
        acts.prepare_text(lake, edit.field, edit.pictures, value)
    elif kind == "picture":
        pictures = pictures_of(lake, find_item(lake, edit.picture or "").images)
        if len(pictures) != 1:
            raise PairmillError(f"'{edit.picture}' names {len(pictures)} pictures; name one by its sha256.")
        acts.prepare_text(lake, edit.field, pictures, value)
    else:
        act = "replace" if kind == "find" else kind
        acts.prepare_rule(lake, dataset.name, act, edit.field, edit.find or edit.regex, value)
