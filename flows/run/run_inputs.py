"""Digest all inputs of a run outside the lake (code, libraries, models, sources) by the stamps of their files.

Nothing is imported or opened. An input without stamps on this machine (S3, the web, endpoints, a model's name on the
hub) makes the digest unknown. A touched file has a new stamp, which costs one unnecessary run.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from pairmill.catalog.lake.stored_files import file_stamp
from pairmill.catalog.recipe.plan import models_of
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.run.settings import ROOT
from pairmill.ops.models.model_digest import ModelError, resolve
from pairmill.ops.read.declared_formats import GROUP
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import LocalTree, SourceError, local_tree

CODE = ("catalog", "flows", "ops", "tasks")
_FORMAT = re.compile(r"[a-z][a-z0-9_]{2,31}")


class _Unknown(Exception):
    """Raised for an input of a run that has no file stamps."""


def inputs_digest(recipe: Recipe, sources: Sequence[str]) -> str:
    """Return the digest of a run's inputs as 64 hex digits, '' if any input has no stamps."""
    digest = hashlib.sha256()
    try:
        for line in _lines(recipe, sources or recipe.sources):
            digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    except (_Unknown, ModelError, SourceError, PairmillError, OSError, RuntimeError, ValueError):
        return ""  # the run itself reports the error
    return digest.hexdigest()


def _lines(recipe: Recipe, sources: Sequence[str]) -> Iterator[str]:
    """Yield the lines of text to hash. Raises _Unknown for an input without stamps."""
    yield sys.version
    for name in CODE:
        yield from _stamps(ROOT / name)
    yield from _libraries()
    yield from _declarations()
    for spec in sorted(set(models_of(recipe).values())):
        yield spec
        yield from _stamps(_model_folder(spec))
    for folder in recipe.contamination.sets if recipe.contamination else ():
        yield folder
        yield from _stamps(Path(folder).expanduser())
    for file in (recipe.heads or {}).values():
        yield f"{file} {file_stamp(str(Path(file).expanduser()))}"
    for format, tree in sorted(map(_tree, sources), key=lambda found: (found[0], found[1].place)):
        yield f"{format}:{tree.place}"
        yield from _listing(tree)


def _stamps(folder: Path) -> Iterator[str]:
    """Yield name and stamp of every file below a folder, sorted; skip ``__pycache__`` with its unfinished files."""
    found = (file for file in folder.rglob("*") if file.parent.name != "__pycache__" and file.is_file())
    yield from sorted(f"{file.relative_to(folder).as_posix()} {file_stamp(str(file))}" for file in found)


def _libraries() -> Iterator[str]:
    """Yield name and version of each installed package, as the name of its ``.dist-info`` folder."""
    for place in sys.path:
        if os.path.isdir(place):
            yield from sorted(name for name in os.listdir(place) if name.endswith(".dist-info"))


def _declarations() -> Iterator[str]:
    """Yield each score's declaration, and the file stamps of other packages that declare scores or formats."""
    packages = {point.value.partition(":")[0].partition(".")[0] for point in entry_points(group=GROUP)}
    for score in declared():
        yield repr(score)
        if score.package != "pairmill":
            packages.add(score.op.partition(":")[0].partition(".")[0])
    for name in sorted(packages):
        spec = find_spec(name)
        if spec is None or not spec.origin:
            raise _Unknown
        yield from _stamps(Path(spec.origin).parent) if spec.submodule_search_locations else [file_stamp(spec.origin)]


def _model_folder(spec: str) -> Path:
    """Return a model's folder on this machine. Raises _Unknown if only a hub or an endpoint knows the model's files."""
    family, _, name = spec.partition(":")
    name = name.removeprefix("local-dir:") if family == "open_clip" else name
    is_folder = Path(name).expanduser().is_dir()
    if family == "spacy" or (is_folder and (family == "hf" or spec.startswith("open_clip:local-dir:"))):
        return resolve(spec)
    raise _Unknown


def _listing(tree: LocalTree) -> Iterator[str]:
    """Yield a source as ingest lists it, without opening files: each file's path, size and etag, and each fault."""
    files = FileTable()
    for fault in tree.list_into(files):
        yield f"{fault.item} {fault.reason} {fault.detail}"
    for entry in files.beyond(()):
        yield f"{entry.path} {entry.size} {entry.etag}"


def _tree(uri: str) -> tuple[str, LocalTree]:
    """Open a local source without the readers of formats: (format or '', tree). Raises _Unknown, SourceError."""
    if "://" in uri or "${" in uri:
        raise _Unknown
    format, colon, place = uri.partition(":")
    if os.path.exists(uri) or not colon or not _FORMAT.fullmatch(format):
        format, place = "", uri
    there = os.path.exists(place) or not (ROOT / place).exists()
    return format, local_tree(place if there else str(ROOT / place))
