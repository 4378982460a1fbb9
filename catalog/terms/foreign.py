"""Load what other packages declare as entry points of a group; refuse a broken package in one line."""

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from pairmill.catalog.terms.error import PairmillError

T = TypeVar("T")


def foreign(group: str, what: str, checked: Callable[[object, str], T]) -> Iterator[tuple[str, T]]:
    """Yield the package and the declaration of each entry point of ``group``, sorted by package and name.

    Args:
        group: The entry point group, such as 'pairmill.scorers'.
        what: The declared thing, for messages: 'score'.
        checked: Returns a loaded object as a declaration. Its second argument is 'PACKAGE.MODULE:NAME'. It raises
            ValueError with a clause that says what is wrong.

    Raises:
        PairmillError: A declaration cannot be imported, or ``checked`` refuses it.
    """
    for point in sorted(entry_points(group=group), key=lambda point: (_package(point), point.name)):
        try:
            declaration = checked(_loaded(point, what), point.value)
        except ValueError as error:
            raise PairmillError(f"package '{_package(point)}': {error}. Update or uninstall it.") from error
        yield _package(point), declaration


def _package(point: EntryPoint) -> str:
    """Return the name of the package that declares an entry point; '?' if unknown."""
    return point.dist.name if point.dist else "?"


def _loaded(point: EntryPoint, what: str) -> object:
    """Import the object of an entry point. Raise PairmillError if that fails."""
    try:
        return point.load()
    except Exception as error:
        raise PairmillError(
            f"package '{_package(point)}' declares the {what} '{point.name}' as {point.value}, which cannot be "
            f"imported: {type(error).__name__}: {error}. Update or uninstall it."
        ) from error
