"""Make the lake of format 1 that every later commit must open: ``python -m tests.worlds.lake_of_format_1``.

It writes `tests/worlds/lakes/format_1.tar.xz`, the lake with its pages, and `defaults.json`, the defaults of all
settings. Both are made once, by the commit that ends format 1, and never again: tests/flows/test_lake_of_format_1.py.

The lake has captions, tags, fused texts, imported scores, pages that were read again, a removal, two versions of one
dataset, and a version that was dropped.
"""

import json
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from pydantic import BaseModel

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.declared import declared
from pairmill.flows.command.cli import main
from pairmill.tasks.run.place.identity import op_class
from tests.worlds.generated import generate
from tests.worlds.shared import copied, made_once

LAKES = Path(__file__).with_name("lakes")
PACKED, DEFAULTS = LAKES / "format_1.tar.xz", LAKES / "defaults.json"
# Ids of documents depend on the place of their pages, so the pages stand here wherever the lake is.
PAGES = Path("/tmp/pairmill-lake-of-format-1/pages")
SECONDS = 1_750_000_000  # time of all pages, because etags depend on it
SETTINGS = ("balance.cap=30", "imported=[kilobytes]")
DOCUMENTS = 5
RUN = ("run", "demo", "--source", str(PAGES), *(word for each in SETTINGS for word in ("--set", each)))
PLACEMENT = {"version", "batch_size", "connections", "per_host", "seconds", "retries"}  # no identity has them
SCRATCH = (".facts", ".browse", "reports")


def make(folder: Path) -> Path:
    """Make the lake at ``folder``/lake with its pages at PAGES; return the lake."""
    lake, at = folder / "lake", ("--lake", str(folder / "lake"))
    shutil.rmtree(PAGES.parent, ignore_errors=True)
    shutil.copytree(generate(folder / "world", seed=7, documents=DOCUMENTS), PAGES)
    for path in sorted(PAGES.rglob("*")):
        _shrink(path)
    _set_times()
    _tell("run", "demo", "--source", str(PAGES), "--set", "balance.cap=30", *at)
    with create_or_open(lake, read_only=True) as opened:
        pictures = opened.query("SELECT sha256, n_bytes / 1000 FROM image_content ORDER BY sha256")
        kept = opened.query("SELECT image_id, sha256 FROM pairs ORDER BY image_id")
    table = {"sha256": [sha256 for sha256, _ in pictures[::2]], "kilobytes": [size for _, size in pictures[::2]]}
    pq.write_table(pa.table(table), folder / "kilobytes.parquet")
    _tell("import-scores", str(folder / "kilobytes.parquet"), "--key", "sha256", "--name", "kilobytes", *at)
    page = min(PAGES.rglob("*.html"))
    page.write_text(page.read_text().replace("</body>", "<p>The page has one more sentence now.</p></body>"))
    _set_times()
    (folder / "taken").write_bytes(_bytes_of(lake, kept[0][1]))
    _tell("takedown", "--image", str(folder / "taken"), "--reason", "a test", "--yes", *at)
    _tell(*RUN, *at)
    for cap in (2, 1):
        _tell("recut", "demo", "--set", f"balance.cap={cap}", "--name", "few", *at)
    _tell("drop", "few@2", "--yes", *at)
    return lake


def unpack(folder: Path) -> Path:
    """Unpack the kept lake below ``folder``, and its pages to PAGES; return the lake. Make it while none is kept."""
    if not PACKED.exists():
        return copied(made_once("lake-of-format-1", make) / "lake", folder / "lake")
    with tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data")
    PAGES.parent.mkdir(parents=True, exist_ok=True)
    if not PAGES.exists():
        new = PAGES.with_name(f"pages-{os.getpid()}")
        shutil.copytree(folder / "pages", new)
        try:
            new.rename(PAGES)
        except OSError:  # another test was first
            shutil.rmtree(new)
    return folder / "lake"


def pack(lake: Path) -> None:
    """Write PACKED: the lake without what is made from the rest, and the pages."""
    with tarfile.open(PACKED, "w:xz", preset=9) as packed:
        packed.add(lake, "lake", filter=lambda each: None if Path(each.name).name in SCRATCH else _plain(each))
        packed.add(PAGES, "pages", filter=_plain)


def defaults() -> dict[str, Any]:
    """Return the default of every setting: of recipes by SECTION.NAME, of scores' ops by SCORE.NAME."""
    found = dict(_of_model(Recipe))
    for score in declared():
        if score.op and score.package == "pairmill":
            has = {each.name: each.default for each in fields(op_class(score)) if each.default is not MISSING}
            found |= {f"{score.name}.{name}": value for name, value in has.items() if name not in PLACEMENT}
    return json.loads(json.dumps(found, default=str))


def _of_model(model: type[BaseModel], seen: frozenset[type] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Yield (CLASS.NAME, default) of the settings of a section and of the sections in it."""
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if not field.is_required() and not isinstance(default, BaseModel) and name not in PLACEMENT:
            yield f"{model.__name__}.{name}", default
        for inner in _models_in(field.annotation):
            if inner not in seen:
                yield from _of_model(inner, seen | {model, inner})


def settings_in(model: type[BaseModel], value: dict[str, Any]) -> Iterator[str]:
    """Yield CLASS.NAME of the settings that a part of a recipe names; captioners and rules as a list, or by name."""
    for name in model.model_fields.keys() & value.keys():
        yield f"{model.__name__}.{name}"
        inner = value[name]
        parts = inner if isinstance(inner, list) else [inner, *inner.values()] if isinstance(inner, dict) else []
        for part in _models_in(model.model_fields[name].annotation):
            for each in parts:
                if isinstance(each, dict):
                    yield from settings_in(part, each)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)


def _bytes_of(lake: Path, sha256: str) -> bytes:
    with create_or_open(lake, read_only=True) as opened:
        return opened.query("SELECT bytes FROM payloads WHERE sha256 = ?", (sha256,))[0][0]


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who made the entry."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _shrink(path: Path) -> None:
    """Halve the sides of a picture, so that the packed lake is small; leave any other file."""
    with suppress(OSError, SyntaxError, Image.DecompressionBombError), Image.open(path) as picture:
        half = picture.convert("RGB").resize((max(1, picture.width // 2), max(1, picture.height // 2)))
        half.save(path, picture.format)


def _set_times() -> None:
    for path in PAGES.rglob("*"):
        os.utime(path, (SECONDS, SECONDS))


def _tell(*arguments: str) -> None:
    if main(arguments):
        sys.exit(f"pairmill {' '.join(arguments)} failed")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        pack(make(Path(place)))
    DEFAULTS.write_text(json.dumps(defaults(), indent=1, sort_keys=True) + "\n")
    print(f"{PACKED}: {PACKED.stat().st_size:,} bytes; {DEFAULTS}: {len(defaults())} settings")
