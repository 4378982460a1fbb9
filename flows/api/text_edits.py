"""Edit the texts of a dataset's pairs: preview an edit, store it, undo it."""

import getpass
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset, find
from pairmill.catalog.queries.edit_preview import EditPreview, preview_edit
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError, did_you_mean
from pairmill.catalog.upkeep.taken_items import pictures_of
from pairmill.catalog.write import acts
from pairmill.catalog.write.acts import Act
from pairmill.catalog.write.lease import Writer, writing
from pairmill.flows.api.asked_item import find_item

WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class TextEdit:
    """An edit of one ``field``, a column of pairs, by one of five kinds.

    ``find`` and ``regex`` need ``replace``; ``picture`` (an item as `pairmill why` takes it) needs ``text``; ``table``
    is a file of new texts (`acts.prepare_table`); ``prefix`` begins every text.
    """

    field: str = "caption"
    find: str | None = None
    regex: str | None = None
    replace: str | None = None
    prefix: str | None = None
    table: str | None = None
    picture: str | None = None
    text: str | None = None

    @property
    def kinds(self) -> list[str]:
        """The kinds that are given: exactly one, or the edit is not valid."""
        return [name for name in ("find", "regex", "prefix", "table", "picture") if getattr(self, name) is not None]


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
        reasons = {"picture": "the picture has this text already, or is in no pair", "table": "no text there is new"}
        why = reasons.get(kind, "case and spaces count, and earlier edits come first")
        raise PairmillError(f"--{kind} changes no {edit.field} of {dataset}: {why}. Nothing was stored.")
    return dataset, found


def edit_texts(lake: Lake, spec: str, edit: TextEdit) -> tuple[str, Dataset, EditPreview]:
    """Store an edit; return its id, and what `preview_text_edit` returns. Raises as that does, LeaseHeld, LeaseLost."""

    def stored(writer: Writer) -> tuple[str, Dataset, EditPreview]:
        # Under the lease: a takedown between the two would leave what it has removed in the stored rows.
        dataset, found = preview_text_edit(lake, spec, edit)
        return acts.store(writer, dataset.name, _account()), dataset, found

    return _write(lake, spec, stored)


def undo_edit(lake: Lake, spec: str, act_id: str) -> Act:
    """Undo an edit of a dataset, as `acts.undo`; return it. Raises as that does, LeaseHeld, LeaseLost."""
    return _write(lake, spec, lambda writer: acts.undo(writer, find(lake, spec).name, act_id, _account()))


def _write(lake: Lake, spec: str, write: Callable[[Writer], Any]) -> Any:
    """Call ``write`` under the lease, for which it waits a minute."""
    with writing(lake, uuid.uuid4().hex, f"edit {spec}", WAIT_SECONDS) as writer:
        return write(writer)


def _prepare(lake: Lake, dataset: Dataset, kind: str, edit: TextEdit) -> None:
    """Prepare an edit in the lake's temporary tables. Raise PairmillError if a part is missing or not valid."""
    value = {"find": edit.replace, "regex": edit.replace, "prefix": edit.prefix, "picture": edit.text}.get(kind, "")
    if value is None:
        other = "text" if kind == "picture" else "replace"
        raise PairmillError(f"--{kind} needs --{other} TEXT; --{other} '' removes what it stands for.")
    if kind == "table":
        acts.prepare_table(lake, edit.field, Path(edit.table or ""))
    elif kind == "picture":
        pictures = pictures_of(lake, find_item(lake, edit.picture or "").images)
        if len(pictures) != 1:
            raise PairmillError(f"'{edit.picture}' names {len(pictures)} pictures; name one by its sha256.")
        acts.prepare_text(lake, edit.field, pictures, value)
    else:
        act = "replace" if kind == "find" else kind
        acts.prepare_rule(lake, dataset.name, act, edit.field, edit.find or edit.regex, value)


def _account() -> str:
    """Return the name of the account that runs this process, 'unknown' if it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
