"""Draw histories of commands, many of them killed somewhere, on a small lake that must equal a model after each.

From the repository's root: ``python -m infra.endure.histories [--times 300] [--seed 1] [--postgres] [--minutes 90]``. A
history has commands (run, retry, takedown, forget, drop, recut, import, maintain, check, repair), files that are lost
or changed, disks that are full from some write on, and a source that changes or is away. It prints a line a history;
one with a fault tells its steps.

Each command runs in a fork of this process, which has imported what commands need: a run then takes 2 CPU s, in 170
statements of DuckLake. Three of four histories go on from a copy of the lake of one undisturbed run; the others begin
without a lake.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset  # DuckDB imports it and pytz in every process
import pyarrow.parquet as pq
import pytz  # noqa: F401
from PIL import Image

from infra.endure import killed_at
from infra.endure.fault_kinds import FULL_DISK, before_libc
from infra.endure.lake_model import Held, LakeModel
from infra.endure.trial_world import ROOT
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.ids import content_id
from pairmill.catalog.write.import_scores import newest_import
from pairmill.flows import check, curate, maintain  # noqa: F401 imported once, for all forks
from pairmill.flows.command import display, lake_commands, pairmill_run, removals, version_commands  # noqa: F401
from pairmill.flows.command.cli import main as pairmill
from pairmill.flows.pages import html_report  # noqa: F401
from pairmill.flows.run import run_recipe, run_start  # noqa: F401
from pairmill.tasks.run.pool import fork_server, pool, process
from pairmill.tasks.upkeep import repair  # noqa: F401
from tests.worlds.elsewhere import postgres_server, write_yaml

RESULT = ROOT / "infra" / "endure" / "results" / "histories.json"
PAGES, STEPS, KILLED_SHARE, REPORTED_SHARE = 8, 3, 0.6, 0.1
MADE_SHARE = 0.75  # histories that go on from a lake that is made
SIDE = 62  # pixels that the recipe's rule asks of a picture's shorter side; those that recuts ask
SIDES = (60, 63, 66, 69)
RECIPE = f"""
name: small
models: {{}}
images: [{{name: short_side, keep: "least(width, height) >= {SIDE}"}}, {{name: sharp, keep: "sharpness >= 0"}}]
sentences: [{{name: length, keep: "n_words between 3 and 81"}}]
duplicates: {{phash: null, cosine: null}}
association: none
balance: {{cap: none}}
ingest: {{documents_per_shard: 2}}
"""
LATE = {2: 10, 5: 11}  # page -> a picture that its first readers do not find
# Ends of writes of a command at first, among which a kill is drawn; later those of its last undisturbed call.
ENDS = {"run": 200, "retry": 200, "takedown": 200, "forget": 100, "drop": 40, "recut": 60, "import": 30,
        "maintain": 200, "check": 8, "repair": 100}  # fmt: skip
SAYS = "Page {page} in version {version} tells of foxes, bridges and boats."
_SAID = re.compile(r"Page (\d+) in version (\d+) tells")
IMPORTED = "imported_beauty"
READ_BY_CHECKS = ("partitions", "takedowns", "file_digests")


# What workers of these recipes import.
OF_WORKERS = (
    "duckdb",
    "pairmill.tasks.collect.ingest",
    "pairmill.tasks.measure.score_contents",
    "pairmill.ops.read.formats.html_folder",
    "pairmill.ops.image.image_quality",
    "pairmill.ops.image.phash",
)


def picture(n: int) -> bytes:
    """Return a PNG of noise, 60 + n pixels high, wider than that."""
    out = io.BytesIO()
    noise = np.random.default_rng(n).integers(0, 255, (60 + n, 80 + n, 3), dtype=np.uint8)
    Image.fromarray(noise).save(out, "png")
    return out.getvalue()


PICTURES = {n: picture(n) for n in (*range(PAGES + 2), *LATE.values())}
_OF_ID = {content_id(data): n for n, data in PICTURES.items()}


def shown_by(page: int, version: int) -> list[int]:
    """Return the pictures that a version of a page shows; neighbours share some."""
    return [page + version, page + version + 1, *([LATE[page]] if page in LATE else [])]


class PageFolder:
    """A folder of pages that change, come and go, and may be away as a whole."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self._chance = folder, chance
        self.pages: dict[int, int] = {}
        self.late: set[int] = set()  # late pictures that are there
        self.is_away = False
        is_there = folder.exists()  # a copy: to write it anew would change its times, and with them its etags
        folder.mkdir(exist_ok=True)
        for page in range(3):
            if is_there:
                self.pages[page] = 0
            else:
                self._write(page, 0)

    def change(self) -> str:
        """Let something happen to the source; return what."""
        if self.is_away or self._chance.random() < 0.2:
            self.put_away(not self.is_away)
            return "away" if self.is_away else "back"
        waiting = [page for page in self.pages if page in LATE and LATE[page] not in self.late]
        others = [page for page in range(PAGES) if page not in self.pages]
        kinds = ["change", *["add"] * 2 * bool(others), *["remove"] * (len(self.pages) > 2), *["late"] * bool(waiting)]
        kind = self._chance.choice(kinds)
        page = self._chance.choice(waiting if kind == "late" else others if kind == "add" else sorted(self.pages))
        if kind == "remove":
            for file in self.folder.glob(f"p{page}[.-]*"):
                file.unlink()
            del self.pages[page]
        elif kind == "late":
            self.late.add(LATE[page])
            self._write(page, self.pages[page])
        else:
            self._write(page, 1 - self.pages.get(page, 1))
        return f"{kind} {page}"

    def put_away(self, is_away: bool) -> None:
        """Rename the folder, or put it back."""
        if is_away != self.is_away:
            self._place(self.is_away).rename(self._place(is_away))
            self.is_away = is_away

    def _place(self, is_away: bool) -> Path:
        return self.folder.with_name("away") if is_away else self.folder

    def _write(self, page: int, version: int) -> None:
        shown = shown_by(page, version)
        for file in self.folder.glob(f"p{page}-*"):
            file.unlink()
        for n in shown:
            if n not in LATE.values() or n in self.late:
                (self.folder / f"p{page}-{n}.png").write_bytes(PICTURES[n])
        tags = "".join(f'<p><img src="p{page}-{n}.png"></p>' for n in shown)
        text = f"<p>{SAYS.format(page=page, version=version)}</p><p>A sentence that all pages have is here.</p>"
        (self.folder / f"p{page}.html").write_text(f"<html><body>{text}{tags}</body></html>")
        self.pages[page] = version


@dataclass(frozen=True)
class Ended:
    """How a fork ended: its exit status or the signal's number below 0, its result, what it printed, seconds."""

    status: int
    result: Any
    text: str
    seconds: float


class _Forked(process.Process):
    """A worker that is forked also where it lists sources, so that it imports nothing."""

    def __init__(self, environment: Mapping[str, str], is_forked: bool, lanes: int = 1) -> None:
        super().__init__(environment, is_forked=True, lanes=lanes)


class Fork:
    """Run functions in forks of this process, which share its imports and its fork server."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        gc.freeze()  # else a fork copies what its collections mark
        fork_server.preload([])
        fork_server._modules[-1:-1] = OF_WORKERS
        fork_server.start_fork_server()

    def __call__(self, call: Callable[[], Any]) -> Ended:
        """Return how ``call`` ended in a process of its own; its result is pickled."""
        self._log.write_bytes(b"")
        read, write = os.pipe()
        began = time.monotonic()
        if (pid := os.fork()) == 0:
            self._in_fork(call, read, write)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            data = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        text = self._log.read_text(errors="replace")
        return Ended(status, pickle.loads(data) if data else None, text, time.monotonic() - began)

    def _in_fork(self, call: Callable[[], Any], read: int, write: int) -> None:
        status = 97
        try:
            os.close(read)
            log = os.open(self._log, os.O_WRONLY | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.set_inheritable(write, False)
            forkserver._forkserver.ensure_running = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
            process.start_fork_server = lambda: None
            pool.Process = _Forked
            result = call()
            status = result if isinstance(result, int) else 0
            with os.fdopen(write, "wb") as pipe:
                pickle.dump((result, killed_at.ENDS[0]), pipe)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def observe(lake: str) -> tuple[Held, dict[str, str], list[str]]:
    """Read what a lake holds; return it with the digests of its scorers by table, and what has rows twice."""
    with create_or_open(lake, read_only=True) as opened:
        query, faults = opened.query, []
        names: dict[str, tuple[int, int]] = {}  # a page that is read again with its late picture is another document
        for document, text in query("SELECT document_id, text FROM sentences"):
            if said := _SAID.match(text):
                names[document] = int(said[1]), int(said[2])
        shown: dict[tuple[int, int], set[int]] = {}
        for document, uri in query("SELECT document_id, uri FROM documents"):
            if document not in names:
                faults.append(f"document {uri} has no sentence of its own")
                names[document] = int(re.findall(r"p(\d+)", uri)[-1]), -1
            shown.setdefault(names[document], set())
        for document, sha256 in query("SELECT document_id, sha256 FROM images"):
            shown.setdefault(names.get(document, (-1, -1)), set()).add(_OF_ID[sha256])
        values: dict[str, dict[int, float]] = {}
        scorers = dict(query("SELECT 'image_quality', max(scorer) FROM image_quality HAVING count(*) > 0"))
        newest = ""
        if IMPORTED in opened.tables:
            newest = newest_import(opened, IMPORTED)
            for scorer, sha256, value in query(f"SELECT scorer, sha256, beauty FROM {IMPORTED}"):
                values.setdefault(scorer, {})[_OF_ID[sha256]] = value
            scorers |= {IMPORTED: newest} if newest in values else {}
        for table in ("image_quality", *([IMPORTED] if IMPORTED in opened.tables else [])):
            if n := query(f"SELECT count(*) - count(DISTINCT (scorer, sha256)) FROM {table}")[0][0]:
                faults.append(f"{table} has {n} rows twice")
        versions: dict[tuple[str, int], set] = {
            tuple(row): set() for row in query("SELECT name, version FROM datasets")
        }
        for name, number, sha256, document in query("SELECT dataset, version, sha256, document_id FROM pairs"):
            versions.setdefault((name, number), set()).add((_OF_ID[sha256], names.get(document, (-1, -1))))
        gone = {
            document for (document,) in query(
                'SELECT document_id FROM superseded GROUP BY document_id HAVING arg_max(gone, "commit")')
        }  # fmt: skip
        missing = query("SELECT payload_ref FROM quarantine WHERE reason = 'missing'")

        def pictures(sql: str) -> frozenset[int]:
            return frozenset(_OF_ID[sha256] for (sha256,) in query(sql) if sha256 in _OF_ID)

        held = Held(
            pictures={name: frozenset(each) for name, each in shown.items()},
            gone=frozenset(names.values()) - frozenset(name for each, name in names.items() if each not in gone),
            payloads=pictures("SELECT DISTINCT sha256 FROM payloads"),
            indexed=pictures("SELECT sha256 FROM image_content"),
            measured=pictures("SELECT DISTINCT sha256 FROM image_quality"),
            imports=values,
            newest=newest,
            versions={name: frozenset(pairs) for name, pairs in versions.items()},
            banned=pictures("SELECT sha256 FROM bans"),
            missing=frozenset(int(re.findall(r"p(\d+)", place)[-1]) for (place,) in missing),
        )
        return held, scorers, faults


@dataclass
class History:
    """A lake, its source and its model; ``step`` does one command and compares."""

    folder: Path
    lake: str
    fork: Fork
    chance: random.Random
    ends: dict[str, int] = field(default_factory=lambda: dict(ENDS))
    told: list[str] = field(default_factory=list)
    is_made: bool = False
    unfinished: bool = False
    killed: int = 0

    def __post_init__(self) -> None:
        self.source = PageFolder(self.folder / "source", self.chance)
        self.model = LakeModel({n: 60 + n for n in PICTURES})
        self.recipe = self.folder / "small.yaml"
        self.recipe.write_text(RECIPE)
        self.scorers: dict[str, str] = {}
        self.flag = Path(os.environ["FULL_FLAG"]) if "FULL_FLAG" in os.environ else None
        self.removed_texts: set[bytes] = set()

    def go(self, steps: int) -> list[str]:
        """Do some steps, then what ends a history; return the faults."""
        if not self.is_made:
            self.run(is_killed=self.chance.random() < KILLED_SHARE)
        for _ in range(steps):
            if self.model.faults:
                break
            if self.chance.random() < 0.5:
                self.told.append(self.source.change())
            self.step()
        if not self.model.faults:
            self.end()
        return self.model.faults

    def step(self) -> None:
        """Draw a command that the lake's state admits, and whether it is killed."""
        held, kinds = self.model.held, [self.run, self.run, self.retry, self.maintain, self.check, self.repair]
        pages = {page for page, _ in held.pictures}
        kinds += [self.take_page] * (len(pages) > 2) + [self.take_picture] * (len(held.shown) > 3)
        kinds += [self.forget] * bool(self.scorers) + [self.drop] * bool(held.versions)
        kinds += [self.recut] * any(name == "small" for name, _ in held.versions)
        kinds += [self.bring] * bool(held.shown) + [self.harm] * bool(held.shown)
        self.chance.choice(kinds if self.is_made else [self.run])(self.chance.random() < KILLED_SHARE)

    def run(self, is_killed: bool, *more: str) -> None:
        """Run the recipe over the source, which may be away."""
        source, late = dict(self.source.pages), frozenset(LATE.values()) & frozenset(self.source.late)
        name = "retry" if more else "run"
        ended, found = self._command(
            name,
            is_killed,
            "run",
            str(self.recipe),
            "--source",
            str(self.source.folder),
            "--workers",
            "1",
            "--allow-empty",
            *more,
        )
        step = self.told[-1]
        if self.source.is_away:
            self.model.expect(ended.status != 0, f"{step}: it ended well without its source")
        elif ended.status == 0:
            self.model.ran(found, source, late, step, whole=True)
            self.model.published(found, "small", self.model.kept(found, SIDE), step)
            lacking = {each for each in self.model.kept(found, SIDE) if each not in found.measured}
            self.model.expect(not lacking, f"{step}: {lacking} have no sharpness")
        if self.source.is_away or ended.status != 0:
            self.model.ran(found, {} if self.source.is_away else source, late, step, whole=False)
        if more and ended.status == 0 and not self.source.is_away:
            for page, version in source.items():
                if page in LATE and page not in self.model.removed_pages and LATE[page] not in found.banned:
                    has = LATE[page] in found.pictures[page, version]
                    is_there = LATE[page] in self.source.late
                    self.model.expect(
                        has == is_there, f"{step}: {page} {'lacks' if is_there else 'has'} its late picture"
                    )
        self._not_bad(ended, ended.status == 0 or self.source.is_away)
        self.model.saw(found, step)

    def retry(self, is_killed: bool) -> None:
        """Look for missing pictures again."""
        self.run(is_killed, "--retry", "missing")

    def take_page(self, is_killed: bool) -> None:
        """Remove a page by its address."""
        page = self.chance.choice(sorted({page for page, _ in self.model.held.pictures}))
        before = self.model.held
        after = before.without_page(page)
        ended, found = self._command("takedown", is_killed, "takedown", "--url", self._place(page), "--yes")
        self._either(ended, found, before, after)
        if found.banned != before.banned or not any(each[0] == page for each in found.pictures):
            self.model.removed_pages.add(page)
            for version in (0, 1):
                if (page, version) in before.pictures:
                    self.removed_texts.add(SAYS.format(page=page, version=version).encode())
        self._removed(ended)
        self.model.saw(found, self.told[-1])

    def take_picture(self, is_killed: bool) -> None:
        """Remove a picture from all pages by a copy of it."""
        n = self.chance.choice(sorted(self.model.held.shown))
        (self.folder / "copy.png").write_bytes(PICTURES[n])
        before = self.model.held
        ended, found = self._command(
            "takedown", is_killed, "takedown", "--image", str(self.folder / "copy.png"), "--yes"
        )
        self._either(ended, found, before, before.without_picture(n))
        self._removed(ended)
        self.model.saw(found, self.told[-1])

    def forget(self, is_killed: bool) -> None:
        """Forget one scorer's rows."""
        table, digest = self.chance.choice(sorted(self.scorers.items()))
        before = self.model.held
        if table == "image_quality":
            after = replace(before, measured=frozenset())
        else:
            left = {each: values for each, values in before.imports.items() if each != digest}
            after = replace(before, imports=left, newest="")
        ended, found = self._command("forget", is_killed, "forget", "--scorer", digest, "--yes")
        self._either(ended, found, before, after, but=() if table == "image_quality" else ("newest",))
        self._removed(ended)
        self.model.saw(found, self.told[-1])

    def drop(self, is_killed: bool) -> None:
        """Drop a version."""
        before = self.model.held
        name, number = self.chance.choice(sorted(before.versions))
        left = {each: pairs for each, pairs in before.versions.items() if each != (name, number)}
        ended, found = self._command("drop", is_killed, "drop", f"{name}@{number}", "--yes")
        self._either(ended, found, before, replace(before, versions=left))
        self.model.saw(found, self.told[-1])

    def recut(self, is_killed: bool) -> None:
        """Publish a version by another rule, which may read an import."""
        before, side = self.model.held, self.chance.choice(SIDES)
        least = self.chance.choice((0.2, 0.5)) if IMPORTED in self.scorers and self.chance.random() < 0.6 else None
        rules = [{"name": "short_side", "keep": f"least(width, height) >= {side}"}]
        rules += [{"name": "pretty", "keep": f"beauty >= {least}"}] if least else []
        sets = ["--set", f"images={json.dumps(rules)}", *(["--set", "imported=[beauty]"] if least else [])]
        ended, found = self._command("recut", is_killed, "recut", "small", "--name", "pretty", *sets)
        step = self.told[-1]
        new = set(found.versions) - set(before.versions)
        old = {each: pairs for each, pairs in found.versions.items() if each not in new}
        self.model.same(replace(found, versions=old), before, step)
        kept = self.model.kept(found, side, least)
        if ended.status == 0 or new:
            self.model.published(found, "pretty", kept, step)
        self._not_bad(ended, ended.status == (0 if kept else 3))  # without a pair nothing is published
        self.model.saw(found, step)

    def bring(self, is_killed: bool) -> None:
        """Import numbers of pictures."""
        number, before = self.chance.randrange(3), self.model.held
        values = {n: random.Random(f"{number} {n}").random() for n in PICTURES}
        names = [content_id(PICTURES[n]) for n in values]
        file = self.folder / f"scores-{number}.parquet"
        pq.write_table(pa.table({"sha256": names, "beauty": list(values.values())}), file)
        ended, found = self._command(
            "import", is_killed, "import-scores", str(file), "--key", "sha256", "--name", "beauty"
        )
        step = self.told[-1]
        mine = {n: values[n] for n in before.indexed}
        imports = dict(before.imports) | (
            {found.newest: mine} if mine else {}
        )  # no picture is indexed: an import of no rows
        expected = replace(before, imports=imports, newest=found.newest)
        self._either(ended, found, before, expected)
        self.model.expect(
            ended.status != 0 or found.imports.get(found.newest, {}) == mine, f"{step}: the values differ"
        )
        self._not_bad(ended, ended.status == 0)
        self.model.saw(found, step)

    def maintain(self, is_killed: bool) -> None:
        """Maintain the lake."""
        ended, found = self._command("maintain", is_killed, "maintain", "--days", self.chance.choice(("7", "1")))
        self._either(ended, found, self.model.held, self.model.held)
        self._finished(ended)
        self.model.saw(found, self.told[-1])

    def check(self, is_killed: bool) -> None:
        """Check the lake: no kill has damaged it."""
        ended, found = self._command("check", is_killed, "check", *["--deep"] * self.chance.randrange(2))
        self._either(ended, found, self.model.held, self.model.held)
        is_waiting = self.unfinished and ended.status == 3 and re.search(r"MB\): \d+ unfinished\n", ended.text)
        self.model.expect(ended.status in (0, -9) or bool(is_waiting), f"{self.told[-1]}: {ended.text[-600:]}")
        self.model.saw(found, self.told[-1])

    def repair(self, is_killed: bool) -> None:
        """Repair the lake, of which nothing is damaged."""
        ended, found = self._command("repair", is_killed, "check", "--repair", *["--deep"] * self.chance.randrange(2))
        self._either(ended, found, self.model.held, self.model.held)
        self._finished(ended)
        self.model.saw(found, self.told[-1])

    def harm(self, is_killed: bool) -> None:
        """Remove or change a data file, and repair, also by a repair that is killed; if refused, put the file back."""
        files = sorted((self.folder / "lake" / "data" / "main").rglob("*.parquet"))
        file = self.chance.choice(files)
        whole, before = file.read_bytes(), self.model.held
        flipped = bytes([whole[len(whole) // 2] ^ 1])
        is_gone = self.chance.random() < 0.5
        file.unlink()
        if not is_gone:
            file.write_bytes(whole[: len(whole) // 2] + flipped + whole[len(whole) // 2 + 1 :])
        self.told.append(f"harm {file.relative_to(self.folder / 'lake')}")
        if is_killed:
            self._command("repair", True, "check", "--repair", is_observed=False)
        ended, _ = self._command("repair", False, "check", "--repair", is_observed=False)
        step = f"{self.told[-1]} of {self.told[-3 if is_killed else -2]}"
        if ended.status:
            # A check reads these tables itself; without one of their files it only says which file to put back.
            is_named = ended.status == 1 and file.parent.name in READ_BY_CHECKS and "Put it back" in ended.text
            self.model.expect(ended.status == 3 or is_named, f"{step}: {ended.text[-600:]}")
            if file.parent.exists():
                file.write_bytes(whole)
            ended, _ = self._command("repair", False, "check", "--repair", is_observed=False)
            self.model.expect(ended.status == 0, f"{step}, put back: {ended.text[-600:]}")
        found = self._observed(step)
        self.unfinished = False
        self.model.same(found, before, step, but=("measured", "imports", "newest", "missing"))
        self.model.expect(found.measured <= before.measured, f"{step}: {set(found.measured)} are measured")
        self.model.expect(found.imports == before.imports, f"{step}: imports are {found.imports}")
        self.model.saw(found, step)

    def end(self) -> None:
        """Put the source back, run, maintain what is unfinished, check; nothing that was removed is in any file."""
        self.source.put_away(False)
        self.run(is_killed=False)
        self.told.append("end")
        if self.unfinished or self.model.held.banned or self.chance.random() < 0.3:
            self.maintain(is_killed=False)
        ended, found = self._command("check", False, "check", "--deep")
        self.model.expect(ended.status == 0, f"check at the end: {ended.text[-600:]}")
        self.model.same(found, self.model.held, "at the end")
        for place, what in self._left():
            self.model.expect(False, f"at the end: {what} was removed, and is in {place}")

    def _left(self) -> Iterator[tuple[str, str]]:
        """Yield the files of the lake that hold a removed picture or text, with what they hold."""
        wanted = {f"picture {n}": PICTURES[n][200:300] for n in self.model.held.banned}
        wanted |= {f"text {text.decode()}": text for text in self.removed_texts}
        for file in (each for each in (self.folder / "lake").rglob("*") if each.is_file()):
            values = [file.read_bytes()]
            # A file that a killed worker left, or one that was damaged and is replaced, cannot be read.
            with suppress(OSError, pa.ArrowException):
                columns = pq.read_table(file).to_pydict().values() if values[0].endswith(b"PAR1") else ()
                flat = (value for column in columns for value in column)
                values += [v if isinstance(v, bytes) else v.encode() for v in flat if isinstance(v, bytes | str)]
            for name, value in wanted.items():
                if any(value in each for each in values):
                    yield str(file.relative_to(self.folder)), name

    def _place(self, page: int) -> str:
        return str(self.source.folder / f"p{page}.html")

    def _command(self, name: str, is_killed: bool, *arguments: str, is_observed: bool = True) -> tuple[Ended, Held]:
        """Run a command in a fork, which is killed at a drawn point; return how it ended, and what the lake holds."""
        point, is_reported = "write 0", self.chance.random() < REPORTED_SHARE
        if is_killed:
            way = self.chance.choice(("write", "write", "write", "full" if self.flag else "write", "time"))
            point = f"{way} {self.chance.randint(1, self.ends[name])}"
            point = f"{self.chance.uniform(0, 2):.2f} s" if way == "time" else point

        def call() -> int:
            if not is_reported:
                run_recipe.outcome_in = _without_report
            maintain.Limits = _without_snapshots
            killed_at.arm(point)
            return pairmill([*arguments, "--lake", self.lake])

        ended = self.fork(call)
        if self.flag and self.flag.exists():
            self.flag.unlink()
            ended = self._full(ended, point)
        shown = " ".join(each.replace(f"{self.folder}/", "") for each in arguments)
        state = {0: "", -9: f", ended at {point}"}.get(ended.status, f", status {ended.status}")
        self.told.append(f"{shown}{state}")
        self.killed += ended.status == -9
        if ended.result and point.startswith("write"):
            self.ends[name] = max(1, ended.result[1])
        self.model.expect(ended.status in (0, 1, 3, -9) and "Traceback" not in ended.text,
                          f"{self.told[-1]}: {ended.text[-1500:]}")  # fmt: skip
        return ended, self._observed(self.told[-1]) if is_observed else self.model.held

    def _full(self, ended: Ended, point: str) -> Ended:
        """Return how a command ended whose disk was full: if it failed, in one line, the lake is as after a kill.

        A repair that leaves damages has status 3 without a write.
        """
        lines = [line for line in ended.text.splitlines() if line.startswith("pairmill: ")]
        is_said = ended.status in (0, 3) or (len(lines) == 1 and "disk is full" in lines[0])
        self.model.expect(is_said, f"at {point}: status {ended.status}: {ended.text[-600:]}")
        return replace(ended, status=-9) if ended.status else ended

    def _observed(self, step: str) -> Held:
        """Read what the lake holds, in a fork."""
        seen = self.fork(lambda: observe(self.lake))
        if seen.result is None:
            is_none = not self.is_made and "there is no lake" in seen.text  # a run was killed before it made one
            self.model.expect(is_none, f"{step}: the lake cannot be read: {seen.text[-600:]}")
            return self.model.held
        self.is_made = True
        held, self.scorers, faults = seen.result[0]
        for fault in faults:
            self.model.expect(False, f"{step}: {fault}")
        return held

    def _either(self, ended: Ended, found: Held, before: Held, after: Held, but: tuple[str, ...] = ()) -> None:
        """Compare with the state before a transaction if it was killed, and else with that after it."""
        is_before = ended.status == -9 and all(
            getattr(found, name) == getattr(before, name) for name in vars(before) if name not in but
        )
        self.model.same(found, before if is_before else after, self.told[-1], but)

    def _removed(self, ended: Ended) -> None:
        """Note whether a removal may be unfinished; it must end well if it was not killed."""
        self.unfinished = ended.status == -9 or (self.unfinished and ended.status != 0)
        self._not_bad(ended, ended.status == 0)

    def _finished(self, ended: Ended) -> None:
        """Note that a maintenance or repair has finished removals."""
        self._not_bad(ended, ended.status == 0)
        self.unfinished = self.unfinished and ended.status != 0

    def _not_bad(self, ended: Ended, is_well: bool) -> None:
        self.model.expect(is_well or ended.status == -9, f"{self.told[-1]}: {ended.text[-600:]}")


def _without_snapshots(days: float) -> maintain.Limits:
    """Return the limits of a maintenance: one of a day expires all snapshots, since none is a day old."""
    return _LIMITS(days=0 if days == 1 else days)


_LIMITS = maintain.Limits


def _without_report(lake: Any, name: str) -> Any:
    """Return the outcome of a run without writing its report, which would take half of the CPU time of a run."""
    from unittest.mock import patch

    from pairmill.flows.run import outcome

    with patch.object(outcome, "ensure_report", lambda *_: ""):
        return outcome.outcome_in(lake, name)


class Worlds:
    """Folders, lakes and databases of histories, all by the same names: a copied lake goes on where it was made."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.fork, self._url = Fork(folder), url
        self._place, self._copy = folder / "history", folder / "made"
        with self._lake() as lake:
            made = History(self._place, lake, self.fork, random.Random(0))
            made.run(is_killed=False)
            faults = made.model.faults
            if faults:
                raise RuntimeError(f"an undisturbed run differs from the model: {faults}")
            self._held, self._scorers, self._used = made.model.held, made.scorers, dict(made.model.used)
            self._copy_to(self._place, self._copy, "made", "history")
        shutil.rmtree(self._place)

    def go(self, seed: int, steps: int) -> dict[str, Any]:
        """Go through the history of a seed; return what came of it. The lake of one with faults is kept."""
        chance, began = random.Random(seed), time.monotonic()
        with self._lake(is_made=chance.random() < MADE_SHARE) as lake:
            is_made = (self._place / "source").exists()
            history = History(self._place, lake, self.fork, chance)
            if is_made:
                history.is_made, history.scorers = True, dict(self._scorers)
                history.model.held, history.model.used = self._held, dict(self._used)
            faults = history.go(steps)
        if faults:
            self._place.rename(self._place.with_name(f"history-{seed}"))
        else:
            shutil.rmtree(self._place)
        return {"seed": seed, "catalog": "Postgres" if self._url else "SQLite", "commands": len(history.told),
                "killed": history.killed, "seconds": round(time.monotonic() - began, 1), "faults": faults,
                "steps": history.told if faults else []}  # fmt: skip

    @contextmanager
    def _lake(self, is_made: bool = False) -> Iterator[str]:
        """Yield the name of a lake, new or a copy of the one that was made; its database is dropped at the end."""
        if is_made:
            self._copy_to(self._copy, self._place, "history", "made")
        else:
            self._place.mkdir()
            self._sql("CREATE DATABASE history")
        lake = self._place / "lake"
        if self._url:
            base = self._url.rpartition("/")[0]
            lake = write_yaml(lake, metadata=f"{base}/history", data_path="data")
        yield str(lake)
        self._sql("DROP DATABASE history WITH (FORCE)")

    def _copy_to(self, place: Path, to: Path, database: str, template: str) -> None:
        shutil.copytree(place, to)
        self._sql(f"CREATE DATABASE {database} TEMPLATE {template}")

    def _sql(self, statement: str) -> None:
        if self._url:
            subprocess.run(["psql", self._url, "-qc", statement], check=True)


def histories(
    folder: Path, seeds: range, steps: int, url: str = "", end: float = float("inf")
) -> Iterator[dict[str, Any]]:
    """Go through the history of each seed, on Postgres at ``url`` if that is given; yield what came of it."""
    worlds = Worlds(folder, url)
    for seed in seeds:
        if time.monotonic() > end:
            return
        yield worlds.go(seed, steps)


def main() -> int:
    """Go through histories, print a line each, store the sums; return 1 if a lake differed from its model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--postgres", action="store_true", help="keep the catalog in a Postgres server of our own")
    parser.add_argument("--to", default=str(RESULT), help="a JSON file for the sums")
    parser.add_argument("--keep", help="a folder for the lakes that differ; default: a temporary one")
    given = parser.parse_args()
    end, found = time.monotonic() + 60 * given.minutes, []
    with ExitStack() as stack:
        if given.keep:
            Path(given.keep).mkdir(parents=True, exist_ok=True)
        folder = Path(given.keep or stack.enter_context(tempfile.TemporaryDirectory()))
        if "FULL_FLAG" not in os.environ and shutil.which("cc"):  # a library is loaded when a process begins
            variables = {"LD_PRELOAD": before_libc(folder, FULL_DISK), "FULL_FLAG": str(folder / "full"),
                         "FULL_FOLDER": str(folder / "history")}  # fmt: skip
            command = [sys.executable, "-m", "infra.endure.histories", *sys.argv[1:], "--keep", str(folder)]
            return subprocess.run(command, env=os.environ | variables).returncode
        url = stack.enter_context(postgres_server()).url if given.postgres else ""
        for each in histories(folder, range(given.seed, given.seed + given.times), given.steps, url, end):
            found.append(each)
            print(f"seed {each['seed']}: {each['commands']} commands, {each['killed']} killed, {each['seconds']} s, "
                  f"{'equal' if not each['faults'] else 'DIFFERENT'}", flush=True)  # fmt: skip
            for line in (*each["steps"], *each["faults"]):
                print(f"    {line}", flush=True)
    sums: Mapping[str, int] = {name: sum(each[name] for each in found) for name in ("commands", "killed")}
    faults = [each for each in found if each["faults"]]
    print(f"{len(found)} histories, {sums['commands']} commands, {sums['killed']} killed, {len(faults)} different")
    stored = json.loads(Path(given.to).read_text()) if Path(given.to).exists() else {}
    catalog = "Postgres" if given.postgres else "SQLite"
    stored[catalog] = {"seed": given.seed, "histories": len(found), **sums, "faults": faults}
    Path(given.to).write_text(json.dumps(stored, indent=1) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
