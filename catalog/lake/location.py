"""Resolve a lake's folder or `lake.yaml` to its metadata database and its data path."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from catalog.terms.error import PairmillError

SQLITE_NAME = "catalog.sqlite"
SETTINGS_NAME = "lake.yaml"


@dataclass(frozen=True)
class Location:
    """Where a lake is. ``uri`` as the user gave it; ``metadata`` an absolute SQLite path or a ``postgresql://`` URL
    without a password; ``data_path`` an absolute folder or an ``s3://`` URL, ending in a slash."""

    uri: str
    metadata: str
    data_path: str

    @property
    def on_postgres(self) -> bool:
        return self.metadata.startswith("postgresql://")

    @property
    def on_s3(self) -> bool:
        return self.data_path.startswith("s3://")


def locate(uri: str | os.PathLike[str]) -> Location:
    """Resolve a folder, or a `lake.yaml` (also one in the folder). Touches nothing.

    Raises PairmillError for a URL, a missing or invalid lake.yaml, a password in it, or a file that is no lake.
    """
    if "://" in str(uri):
        raise PairmillError(
            f"lake '{uri}': a lake is a local folder or a lake.yaml. To keep its data on S3 or its metadata in "
            "Postgres, write a lake.yaml with `metadata:` and `data_path:` and name that file."
        )
    path = Path(os.path.abspath(Path(uri).expanduser()))
    settings = path if path.suffix in (".yaml", ".yml") else path / SETTINGS_NAME
    if settings.is_file():
        return _from_settings(str(uri), settings)
    if path.suffix in (".yaml", ".yml"):
        raise PairmillError(f"lake '{uri}': there is no such file. Write it with `metadata:` and `data_path:`.")
    if path.exists() and not path.is_dir():
        raise PairmillError(f"lake '{uri}' is a file. Name a folder, or a lake.yaml.")
    return Location(str(uri), str(path / SQLITE_NAME), _folder(str(path / "data")))


def _from_settings(uri: str, file: Path) -> Location:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        said = " ".join(str(error).split())
        raise PairmillError(
            f"lake '{uri}': {file} cannot be read as YAML: {said}. Correct it, or put it back from a copy."
        ) from error
    known = {"metadata", "data_path"}
    if not isinstance(content, dict) or set(content) - known or not all(isinstance(v, str) for v in content.values()):
        raise PairmillError(f"lake '{uri}': {file} may hold only the texts `metadata` and `data_path`.")
    return Location(
        uri,
        _metadata(uri, content.get("metadata", SQLITE_NAME), file.parent),
        _data_path(content.get("data_path", "data"), file.parent),
    )


def _metadata(uri: str, text: str, folder: Path) -> str:
    if re.match(r"postgres(ql)?://", text):
        if re.match(r"[a-z]+://[^/@]*:[^/@]*@", text) or "password=" in text:
            raise PairmillError(
                f"lake '{uri}': take the password out of `metadata` and set PGPASSWORD (or a ~/.pgpass file) instead."
            )
        return "postgresql://" + text.split("://", 1)[1]
    text = text.removeprefix("sqlite:")
    if "://" in text:
        raise PairmillError(f"lake '{uri}': `metadata` is a SQLite file or a postgresql:// URL, not '{text}'.")
    return os.path.abspath(folder / Path(text).expanduser())


def _data_path(text: str, folder: Path) -> str:
    return _folder(text if text.startswith("s3://") else os.path.abspath(folder / Path(text).expanduser()))


def _folder(text: str) -> str:
    return text.rstrip("/") + "/"
