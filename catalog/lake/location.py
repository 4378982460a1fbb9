"""Resolve a lake's folder or `lake.yaml` to its metadata database and its data path."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.mark import LAKE_CATALOG

SETTINGS_NAME = "lake.yaml"
# In a URL, everything between the first ':' and the last '@': a password may contain '/', '@' and '?'. Otherwise by
# keyword, as in URL queries and libpq connection strings.
_PASSWORD = re.compile(r"://[^:/?#]*:.*@|passw(or)?d\s*=", re.IGNORECASE | re.DOTALL)
_S3 = re.compile(r"s3:", re.IGNORECASE)
_KEYWORDS = re.compile(r"\s*((host|hostaddr|dbname|user|port|service)\s*=|postgres(ql)?:)", re.IGNORECASE)


@dataclass(frozen=True)
class Location:
    """Location of a lake: its metadata database and its data path.

    ``uri`` is as the user gave it. ``metadata`` is an absolute SQLite path or a ``postgresql://`` URL without a
    password. ``data_path`` is an absolute folder or an ``s3://`` URL, ending in a slash.
    """

    uri: str
    metadata: str
    data_path: str

    @property
    def on_postgres(self) -> bool:
        """Whether the metadata database is on Postgres."""
        return self.metadata.startswith("postgresql://")

    @property
    def folders(self) -> tuple[str, ...]:
        """The lake's own local folders: of its data, and of its catalog unless lake.yaml moved the catalog."""
        own = () if self.on_s3 else (self.data_path,)
        folder, name = os.path.split(self.metadata)
        return own if self.on_postgres or name != LAKE_CATALOG else (*own, folder)

    @property
    def on_s3(self) -> bool:
        """Whether the data is on S3."""
        return self.data_path.startswith("s3://")


def locate(uri: str | os.PathLike[str]) -> Location:
    """Resolve a folder, or a `lake.yaml` (also one inside the folder), without changing anything on disk.

    Raises PairmillError for a URL, a missing or invalid lake.yaml, a password in it, and a file that is not a lake.
    """
    if "://" in str(uri):
        scheme = str(uri).partition("://")[0]  # only the scheme is shown: the rest may contain a password
        raise PairmillError(
            f"lake '{scheme}://…': a lake is a local folder or a lake.yaml. To keep its data on S3 or its metadata in "
            "Postgres, write a lake.yaml with `metadata:` and `data_path:` and name that file."
        )
    path = _absolute(str(uri))
    settings = path if path.suffix in (".yaml", ".yml") else path / SETTINGS_NAME
    if settings.is_file():
        return _from_settings(str(uri), settings)
    if path.suffix in (".yaml", ".yml"):
        raise PairmillError(f"lake '{uri}': there is no such file. Write it with `metadata:` and `data_path:`.")
    if path.exists() and not path.is_dir():
        raise PairmillError(f"lake '{uri}' is a file. Name a folder, or a lake.yaml.")
    return Location(str(uri), str(path / LAKE_CATALOG), str(path / "data") + "/")


def _absolute(uri: str) -> Path:
    """Return the absolute path of ``uri``. Raise PairmillError for an impossible path: too long, a NUL, not UTF-8."""
    try:
        path = Path(os.path.abspath(Path(uri).expanduser()))
        str(path).encode()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise PairmillError(f"lake {ascii(uri)[:200]}: no folder has such a name ({error}).") from error
    if "\0" in str(path):
        raise PairmillError(f"lake {ascii(uri)[:200]}: no folder has such a name (it holds a NUL).")
    return path


def _from_settings(uri: str, file: Path) -> Location:
    """Read a lake.yaml. Raise PairmillError if it is not valid."""
    try:
        from pairmill.catalog.lake.yaml_text import parse_yaml  # imports yaml, which a plain folder does not need

        content = parse_yaml(file.read_text(encoding="utf-8")) or {}
    except (ValueError, OSError) as error:
        # YAML's own message quotes the line, which may contain a password.
        mark = getattr(error.__cause__, "problem_mark", None)
        where = f" (line {mark.line + 1}: {getattr(error.__cause__, 'problem', '')})" if mark else ""
        raise PairmillError(
            f"lake '{uri}': {file} cannot be read as YAML{where}. Correct it, or put it back from a copy."
        ) from None
    known = {"metadata", "data_path"}
    if not isinstance(content, dict) or set(content) - known or not all(isinstance(v, str) for v in content.values()):
        raise PairmillError(f"lake '{uri}': {file} may hold only the texts `metadata` and `data_path`.")
    return Location(
        uri,
        _metadata(uri, content.get("metadata", LAKE_CATALOG), file.parent),
        _data_path(content.get("data_path", "data"), file.parent),
    )


def _metadata(uri: str, text: str, folder: Path) -> str:
    """Validate `metadata` of a lake.yaml: a SQLite path relative to ``folder``, or a Postgres URL without password."""
    if _PASSWORD.search(unquote(text)):
        raise PairmillError(
            f"lake '{uri}': take the password out of `metadata` and set PGPASSWORD (or a ~/.pgpass file) instead."
        )
    if re.match(r"postgres(ql)?://", text, re.IGNORECASE):
        return "postgresql://" + text.split("://", 1)[1]
    text = text.removeprefix("sqlite:")
    if "://" in text or _KEYWORDS.match(text):  # not quoted in the message: the text may contain a password
        raise PairmillError(f"lake '{uri}': `metadata` is neither a SQLite file nor a postgresql:// URL.")
    return os.path.abspath(folder / Path(text).expanduser())


def _data_path(text: str, folder: Path) -> str:
    """Validate `data_path` of a lake.yaml: an s3:// URL, or a path relative to ``folder``."""
    if _S3.match(text) and not text.startswith("s3://"):
        raise PairmillError(
            f"`data_path: {text}` is no place on S3; write s3://BUCKET/PREFIX with two slashes, or ./{text} for a "
            "folder of that name."
        )
    place = text if text.startswith("s3://") else os.path.abspath(folder / Path(text).expanduser())
    return place.rstrip("/") + "/"
