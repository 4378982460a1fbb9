"""Collect every score that this installation declares, and load entry points of any group from other packages."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.score import INPUTS, RUN_AT, TYPES, Score, Stage, of_generated_texts
from pairmill.catalog.terms.scores import OWN, OWN_COLUMNS, named_in

GROUP = "pairmill.scorers"
SLOW_SECONDS = 10.0  # after which the import of a declaration is reported
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
# Reserved: columns of every score table, and those that facts (cut/facts_tables.py) and the cut put beside scores.
_TAKEN = {"shard", "scorer", "commit", "input_digest", "sha256", "content", "key", "dropped_by", "dropped_value",
          "image_id", "document_id", "picture", "repeated", "group_id", "cluster", "draw", "sentence", "gone", "n", "s",
          "place", "rowid"}  # fmt: skip


@cache
def declared() -> tuple[Score, ...]:
    """Return all declared scores, Pairmill's own first, then by package and name. Raise PairmillError for a bad one."""
    found = list(foreign(GROUP, "score", _as_score))
    for package, score in found:
        object.__setattr__(score, "package", package)
    others = [score for _, score in found]
    return validate_scores(
        [*OWN, *others, *(each for score in others if score.of == "pair" for each in of_generated_texts(score))]
    )


def validate_scores(scores: Sequence[Score]) -> tuple[Score, ...]:
    """Return ``scores`` after validating them together.

    Raises PairmillError if a name, type or input is not allowed, or two scores declare one table or column.
    """
    for score in scores:
        if fault := next(_faults(score), None):
            raise PairmillError(f"package '{score.package}', score '{score.name}': {fault}. Update or uninstall it.")
    declarer: dict[tuple[str, str, str], Score] = {}
    for score in scores:  # tables are unique over all scores, columns over the scores of one kind
        columns = (("column", score.of, name) for name in score.rule_columns)
        for what, of, name in (("table", "", score.table), *columns):
            if (other := declarer.setdefault((what, of, name), score)) is not score:
                raise PairmillError(
                    f"the packages '{other.package}' and '{score.package}' both declare the {what} '{name}' (scores "
                    f"'{other.name}' and '{score.name}'). Uninstall one of them."
                )
    return tuple(scores)


def scores_of(kind: str, scores: Iterable[Score]) -> tuple[Score, ...]:
    """Return the scores of ``kind``: 'image', 'sentence' or 'pair'."""
    return tuple(score for score in scores if score.of == kind)


def is_free(name: str, scores: Iterable[Score]) -> bool:
    """Return whether a new score may be called ``name``: no column of images, of ``scores`` or of the cut has it."""
    return name not in _TAKEN | OWN_COLUMNS["image"].keys() and not any(name in score.rule_columns for score in scores)


def find(table: str) -> Score:
    """Return the score that fills ``table``. Raise KeyError if there is none."""
    for score in (*declared(), *named_in([table])):
        if score.table == table:
            return score
    raise KeyError(table)


def _as_score(loaded: object, value: str) -> Score:
    """Return a loaded object that is a Score. Raise ValueError for any other."""
    if not isinstance(loaded, Score):
        raise ValueError(f"{value} is no catalog.terms.score.Score")
    return loaded


def _faults(score: Score) -> Iterator[str]:
    """Yield what is wrong with one declaration, as clauses for a message."""
    base = OWN_COLUMNS[score.of]
    for name in (score.name, score.table, *(column.name for column in score.columns), *score.rule_columns):
        if not _NAME.fullmatch(name):
            yield f"'{name}' is no name of letters, digits and underscores in lower case"
    for column in score.columns:
        if column.type not in TYPES:
            yield f"column '{column.name}' has the type {column.type}; a score may have {', '.join(TYPES)}"
        if column.name in _TAKEN or column.rule_name in base:
            yield f"column '{column.name}' has a name that Pairmill itself uses"
    is_generated = score.by_input and bool(score.op)  # made by `of_generated_texts`, whose source is checked itself
    if (unknown := set(score.reads) - set(INPUTS[score.of])) and not is_generated:
        yield f"it reads '{min(unknown)}'; a score of {score.of}s reads of {', '.join(INPUTS[score.of])}"
    if score.package != "pairmill" and not (score.reads and score.op):
        yield "it names no `op`, or nothing that this reads"
    if score.op and not is_generated and score.stage not in RUN_AT[score.of]:
        names = ", ".join(stage.name for stage in RUN_AT[score.of])
        yield f"its stage is {score.stage.name}; an op that scores {score.of}s runs at one of {names}"
    if score.vector_table and (score.stage != Stage.CLIP or len(score.reads) > 1):
        yield "it reads CLIP's vectors, so its stage is CLIP and it reads nothing else"


T = TypeVar("T")


def foreign(group: str, what: str, checked: Callable[[object, str], T]) -> Iterator[tuple[str, T]]:
    """Yield (package, declaration) of each entry point of ``group``, sorted by package and name.

    ``what`` is the noun for declarations in messages: 'score'. ``checked`` receives a loaded object and its
    'MODULE:NAME', and returns it as a declaration, or raises ValueError with a clause that names the fault.

    Raises PairmillError if a declaration cannot be imported, or ``checked`` refuses it.
    """
    for point in sorted(entry_points(group=group), key=lambda point: (_package_of(point), point.name)):
        try:
            with _log_if_slow(point):
                loaded = point.load()
        except (Exception, SystemExit) as error:
            raise PairmillError(
                f"package '{_package_of(point)}' declares the {what} '{point.name}' as {point.value}, which cannot be "
                f"imported: {type(error).__name__}: {error}. Update or uninstall it."
            ) from error
        try:
            declaration = checked(loaded, point.value)
        except ValueError as error:
            raise PairmillError(f"package '{_package_of(point)}': {error}. Update or uninstall it.") from error
        yield _package_of(point), declaration


@contextmanager
def _log_if_slow(point: EntryPoint) -> Iterator[None]:
    """Import a declaration in the body; if that takes more than SLOW_SECONDS, log a line that names its package."""
    import logging  # commands of an installation without entry points need neither
    import threading

    text = "package '%s' is being imported for %.0f s because it declares %s; if it hangs, uninstall it"
    about = (_package_of(point), SLOW_SECONDS, point.value)
    timer = threading.Timer(SLOW_SECONDS, logging.getLogger("pairmill").warning, (text, *about))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _package_of(point: EntryPoint) -> str:
    """Return the name of the package that declares an entry point; '?' if unknown."""
    return point.dist.name if point.dist else "?"
