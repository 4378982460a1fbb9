"""Damage one file of a finished lake, run every command, open the browser's pages, and check that none is wrong.

A command must end as on the undamaged lake, word for word, or with a nonzero status and one line with the remedy. Long
run, from the repository's root: ``python -m tests.fuzz.corruption --times 500 --seed 1``. With ``--killed`` the last
run of the lake was killed after it committed a version, before it could close the lake.
"""

import argparse
import contextlib
import io
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from lxml import html

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.command.cli import main
from pairmill.flows.command.display import Display
from pairmill.flows.pages.renderer import FOLDER
from tests.worlds import shared
from tests.worlds.browsed import Pages, browsed, text
from tests.worlds.generated import pages, small_settings
from tests.worlds.line import curated_lake
from tests.worlds.shared import copied, made_once

REMEDY = re.compile(
    r"put (it|them|the catalog) back|restore|check |delete|move the|may hold only|there is no lake|write it|make it:",
    re.I,
)
DATA_SHARE = 6  # relative weight of data files; catalog, seal, lake.yaml, facts and report have 1 each
PICTURE = re.compile(rb'<div class="picture">.*?</div>')
DAMAGED = b'<div class="picture">no picture: damaged</div>'
DEAR = ("status", "run", "pages")  # take 3, 5 and 3 CPU s, the other commands 0.3
LOST = (FOLDER / "static" / "lost.svg").read_bytes()  # what browse shows in the place of a picture
SPENT = re.compile(r"\b[\d.]+ (ms|s|min)\b")


@dataclass(frozen=True)
class Answer:
    """The output of one command, and the content of the files that it wrote."""

    status: int
    out: str
    error: str
    files: tuple[tuple[str, bytes], ...] = ()


class Attack:
    """A finished lake, the expected answers of all commands, and copies of the lake in ``place`` to damage.

    ``without`` are names of commands that are skipped because they take seconds. ``killed`` uses a killed run's lake.
    """

    def __init__(self, place: Path, without: tuple[str, ...] = (), killed: bool = False) -> None:
        self.whole = made_once("killed-lake", _make_killed) if killed else made_once("small-lake", _make)
        self.place, self.without = place, without
        with create_or_open(self.whole, read_only=True) as lake:
            ((self.image, self.sha256, self.text),) = lake.query(
                "SELECT image_id, sha256, text1 FROM pairs WHERE text1 IS NOT NULL ORDER BY image_id LIMIT 1"
            )
        self.expected = self.answers(self.copy())
        bad = {name: answer for name, answer in self.expected.items() if answer.status}
        assert not bad, bad

    def copy(self) -> Path:
        """Copy the undamaged lake."""
        lake = self.place / "lake"
        shutil.rmtree(lake, ignore_errors=True)
        return shutil.copytree(self.whole, lake)

    def once(self, chance: random.Random, without: tuple[str, ...] = ()) -> Counter[str]:
        """Damage one file of a new copy and run every command but ``without``; count 'right' and 'refused' answers.

        Raises AssertionError, with the damage, if an answer is neither.
        """
        lake = self.copy()
        done = damage(lake, chance)
        found: Counter[str] = Counter()
        for name, answer in self.answers(lake, without).items():
            found[check(f"{done}; {name}", answer, self.expected[name])] += 1
        return found

    def answers(self, lake: Path, without: tuple[str, ...] = ()) -> dict[str, Answer]:
        """Run every command but ``without``. A run over an undamaged lake has nothing to do and changes no dataset."""
        settings = [f"--set={key}={value}" for key, value in small_settings().items()]
        datasets = ["sql", "SELECT name, version, content_digest, n_pairs, recall FROM datasets", "--format", "csv"]
        asked = {
            "datasets": ["datasets", "--format", "csv"],
            "quarantine": ["quarantine", "--format", "json"],
            "pairs": ["sql", "SELECT * FROM pairs ORDER BY image_id", "--format", "csv"],
            "texts": ["sql", "SELECT text FROM sentences ORDER BY ALL", "--format", "json"],
            "places": ["sql", "SELECT sha256, uri, length FROM payloads ORDER BY ALL", "--format", "csv"],
            "why an image": ["why", self.image],
            "why a text": ["why", self.text],
            "status": ["status"],
            "tars": ["export", "demo", "--to", str(self.place / "tars")],
            "tables": ["export", "demo@1", "--to", str(self.place / "tables"), "--format", "parquet"],
            "run": ["run", "demo", "--source", str(_source()), "--workers", "1", *settings],
            "datasets after the run": datasets,
        }
        left_out = {*self.without, *without}
        pages = {} if "pages" in left_out else self._pages(lake)
        return {name: self._ask(lake, name, each) for name, each in asked.items() if name not in left_out} | pages

    def _pages(self, lake: Path) -> dict[str, Answer]:
        """Open the browser's pages; an error page is an answer with status 1."""
        galleries = ("/gallery?dataset=demo@1", "/gallery", "/rules?dataset=demo@1", "/report?dataset=demo@1")
        addresses = (
            *galleries,
            f"/item/{self.image}?dataset=demo@1",
            f"/picture/large/{self.sha256}",
            "/judge?dataset=demo@1",
        )
        try:
            with browsed(lake) as pages:
                return {address: _shown(pages, address) for address in addresses}
        except PairmillError as error:
            return dict.fromkeys(addresses, Answer(1, "", f"pairmill: {error}"))

    def _ask(self, lake: Path, name: str, arguments: list[str]) -> Answer:
        written = self.place / name
        shutil.rmtree(written, ignore_errors=True)
        out, error = io.StringIO(), io.StringIO()
        told_later = patch.object(Display, "EVERY_SECONDS", 3600.0)  # no line that only a busy machine gets
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error), told_later:
            status = main([*arguments, "--lake", str(lake)])
        files = [path for path in written.glob("*") if path.is_file()] if written.exists() else []
        if name == "run" and not status:
            files.append(_newest_report(lake))
        return Answer(status, _lasting(out.getvalue()), error.getvalue(), tuple(sorted(map(_content, files))))


def damage(lake: Path, chance: random.Random) -> str:
    """Flip a bit of a random byte of a random file; one time in ten truncate the file there, one time in ten delete it.

    Returns a description of the damage.
    """
    groups: dict[str, list[Path]] = {}
    for path in sorted(path for path in lake.rglob("*") if path.is_file() and path.stat().st_size):
        groups.setdefault(path.relative_to(lake).parts[0], []).append(path)
    names = sorted(groups)  # data, reports, .facts, and each file beside them
    (name,) = chance.choices(names, [DATA_SHARE if name == "data" else 1 for name in names])
    path = chance.choice(groups[name])
    data = bytearray(path.read_bytes())
    at, kind = chance.randrange(len(data)), chance.randrange(10)
    if kind == 0:
        path.unlink()
    elif kind == 1:
        path.write_bytes(data[:at])
    else:
        data[at] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    what = {0: "deleted", 1: f"cut at {at}"}.get(kind, f"byte {at} flipped")
    return f"{path.relative_to(lake)} of {len(data)} bytes {what}"


def check(what: str, answer: Answer, expected: Answer) -> str:
    """Return 'right' or 'refused'.

    Raises AssertionError when the answer is neither the expected one nor a refusal in one line.
    """
    if answer.status == 0:
        assert answer.out == expected.out, f"{what}: it says\n{answer.out}\ninstead of\n{expected.out}"
        as_many = len(answer.files) == len(expected.files)
        assert as_many and all(map(_is_same, answer.files, expected.files)), f"{what}: it wrote other files"
        return "right"
    lines = answer.error.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("pairmill: "), f"{what}: it says {answer.error}"
    assert REMEDY.search(lines[0]), f"{what}: without a remedy: {lines[0]}"
    assert answer.status == 1, f"{what}: it ended with {answer.status}"
    return "refused"


def _shown(pages: Pages, address: str) -> Answer:
    """Return what a page shows, once its gallery is built."""
    while b"Reading the lake" in (answer := pages.client.get(address)).content:
        time.sleep(0.05)
    if answer.content == LOST:
        return Answer(1, "", "pairmill: the picture is lost; check the lake")
    if answer.status_code == 200:
        return Answer(0, "", "", ((address, answer.content),))
    (message,) = html.fromstring(answer.text).xpath("//main//p[1]")
    return Answer(1, "", f"pairmill: {text(message)}")


def _make(place: Path) -> None:
    copied(curated_lake(), place)
    (place / "lake.yaml").write_text("metadata: catalog.sqlite\ndata_path: data\n")
    overrides = [f"--set={key}={value}" for key, value in small_settings().items()]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["run", "demo", "--source", str(_source()), "--lake", str(place), *overrides]) == 0


def _make_killed(place: Path) -> None:
    """Make a lake whose newest version is of the run that every attack repeats, which was killed after its commit."""
    shutil.copytree(made_once("small-lake", _make), place)
    arguments = ["run", "demo", "--source", str(_source()), "--lake", str(place)]
    overrides = [f"--set={key}={value}" for key, value in small_settings().items()]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([*arguments, *overrides, "--set=balance.cap=3"]) == 0
    command = [sys.executable, "-m", "tests.worlds.killed_in", "digests", *arguments, *overrides]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == -9, done.stderr[-2000:]


def _source() -> Path:
    return pages()


def _lasting(text: str) -> str:
    """Remove durations from a command's output."""
    return SPENT.sub("·", text)


def _newest_report(lake: Path) -> Path:
    """The report that a run writes or finds whole; those of older versions it leaves as they are."""
    return max((lake / "reports").glob("*.html"), key=lambda path: int(path.stem.rpartition("-")[2]))


def _is_same(found: tuple[str, bytes], expected: tuple[str, bytes]) -> bool:
    """Whether a file is as expected, but for pictures of a report in whose place it says that they are damaged."""
    told = PICTURE.findall(found[1])
    for place, picture in zip(told, PICTURE.findall(expected[1]), strict=False):
        if place == DAMAGED:
            expected = (expected[0], expected[1].replace(picture, DAMAGED, 1))
    return found == expected


def _content(path: Path) -> tuple[str, bytes]:
    """Return a file's name and content; of a report without its seal, which has the run's id."""
    data = path.read_bytes()
    if path.suffix != ".html":
        return path.name, data
    return path.name, data.rpartition(b"<!--")[0]


def run(times: int, seed: int, killed: bool = False) -> Counter[str]:
    """Damage ``times`` copies, each by its own seed; count the 'right' and the 'refused' answers."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        attack = Attack(Path(place), killed=killed)
        for number in range(times):
            found += attack.once(random.Random(f"{seed} {number}"))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--killed", action="store_true", help="the lake is that of a killed run")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shared.PLACE = Path(folder)
        print(dict(run(arguments.times, arguments.seed, arguments.killed)), f"{time.monotonic() - started:.0f} s")
