"""Every place where Pairmill writes copies of a lake's items is declared; a removal finds each, half-written too."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.side_folders import reports_folder, spill_folder
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.gallery import gallery_file
from pairmill.catalog.terms.ids import content_id
from pairmill.tasks.upkeep.item_copies import PLACES, remove_copies, spill_parents
from tests.worlds.published import picture, published

ROOT = Path(__file__).parents[2]
WRITES = {
    "whole_file", "write_bytes", "write_text", "mkdir", "makedirs", "make_folder", "copyfile", "memmap", "savez",
    "cache_folder", "own_cache_folder", "ParquetWriter", "write_table", "NamedTemporaryFile", "mkstemp", "mkdtemp",
    "TemporaryDirectory", "TemporaryFile", "SpooledTemporaryFile", "COPY",
}  # fmt: skip
# Modules whose files hold no item of a lake, or are found by other ways.
OTHERS = {
    "the lake's own files, which a removal rewrites or sweeps": (
        "catalog.lake.lake", "catalog.lake.stored_files", "tasks.run.items.partition", "catalog.lake.metadata",
        "catalog.lake.opening", "catalog.lake.new_lake", "catalog.lake.seal", "tasks.run.items.index_rows",
    ),
    "functions that the writers call": (
        "catalog.terms.whole_file", "catalog.lake.side_folders", "tasks.upkeep.item_copies", "tasks.run.items.rows",
    ),
    "a place that the user names, which the report of a removal says": (
        "catalog.queries.judge.judging", "flows.command.removals", "flows.command.version_commands",
        "flows.command.pairmill_prove", "tasks.release.export.destination", "tasks.release.export.parquet_tables",
        "tasks.release.export.picture_folder",
    ),
    "files without a name, which end with their process": (
        "tasks.release.export.shuffled_pictures", "ops.read.places.unpack", "ops.read.places.web",
    ),
    "no item: models, addresses, logs, locks": (
        "ops.models.s3_folder", "ops.models.hub_model", "flows.with_prefect.local_prefect",
        "flows.with_prefect.processes",
        "flows.command.pairmill_demo", "tasks.run.pool.fork_server", "flows.command.pairmill_start",
        "flows.preflight.cost_forecast", "flows.preflight.first_look",  # a folder with lakes of its own
    ),
}  # fmt: skip


def written_by(source: str) -> set[str]:
    """Return the calls of a module that create files or folders."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            is_written = name == "open" and any(set(text) & set("wax+") and len(text) <= 3 for text in texts)
            if name in WRITES or is_written or "O_CREAT" in ast.unparse(node):
                found.add(name)
    return found


def test_each_module_that_writes_files_is_a_writer_of_a_declared_place_or_is_said_to_write_no_item():
    declared = {writer for place in PLACES for writer in place.writers}
    known = declared | {module for modules in OTHERS.values() for module in modules}
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for floor in ("flows", "tasks", "ops", "catalog")
        for path in (ROOT / floor).rglob("*.py")
        if written_by(path.read_text(encoding="utf-8"))
    }
    assert found == known


@pytest.fixture
def lake(tmp_path: Path, own_temporary_files: Path) -> Iterator[Lake]:
    published(tmp_path / "lake")
    with create_or_open(tmp_path / "lake") as opened:
        yield opened


def test_a_removal_finds_copies_in_every_declared_place_and_in_what_killed_processes_left(lake: Lake, tmp_path: Path):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    reports, taken, other = reports_folder(lake.uri), content_id(picture(0)), content_id(picture(1))
    planted: list[Path] = []
    kept: list[Path] = []
    for place in PLACES:
        for folder in place.folders(lake, reports):
            for pattern in place.patterns:
                name = pattern.replace("*", f"{taken}-small.jpg") if place.named else pattern.replace("*", "copy")
                planted += [folder / name, *([] if name.endswith("html") else [folder / f"{name}.123.part"])]
                kept += [folder / pattern.replace("*", f"{other}-small.jpg")] if place.named else []
    for parent in spill_parents(lake):
        own = Path(spill_folder(str(parent)))
        planted.append(own.with_name(own.name.replace(f"-{os.getpid()}-", f"-{int(ended.stdout)}-")) / "copy")
        kept.append(own.with_name(own.name.replace(f"-{os.getpid()}-", f"-{os.getppid()}-")) / "copy")
        kept.append(parent / f".spill-elsewhere-{os.getpid()}-{'0' * 32}" / "copy")  # as pods number processes alike
    for path in [*planted, *kept]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"a copy")
    stay = list(remove_copies(lake, {taken}, reports))
    assert [path for path in planted if path.exists()] == []
    assert all(path.exists() for path in kept)
    for owner in (f"process {os.getppid()}", "a process on elsewhere"):
        assert sum(f"which {owner} made" in line for line in stay) == len(spill_parents(lake)), owner


@pytest.mark.slow
def test_a_gallery_that_was_begun_before_a_removal_is_built_again(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    built = []

    def build(*arguments: object) -> None:
        built.append(arguments)
        if len(built) == 1:
            lake.execute("INSERT INTO takedowns VALUES ('a removal', 'test', '{}', 99, now())")
        building(*arguments)  # pyright: ignore[reportArgumentType]

    building = gallery_file._build
    monkeypatch.setattr(gallery_file, "_build", build)
    made = gallery_file.gallery_file(lake, datasets.find(lake, "small"))
    assert len(built) == 2 and [made] == list(made.parent.glob("gallery-*"))
    assert made == gallery_file.gallery_file(lake, datasets.find(lake, "small")) and len(built) == 2
