"""Read a file of names, one a line."""

from pathlib import Path

from pairmill.catalog.terms.error import PairmillError


def name_list(path: str) -> list[str]:
    """Return the distinct names in the file's order; blank lines are left out.

    Raises:
        PairmillError: The file cannot be read, is no UTF-8 text, or holds no name.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PairmillError(f"'{path}' cannot be read as a list of names ({error}); give a text file.") from error
    names = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not names:
        raise PairmillError(f"'{path}' holds no name; write one a line.")
    return names
