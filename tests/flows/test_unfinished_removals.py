"""A removal that was killed at any step, then any command that writes: nothing else is lost, nothing of it is left."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.ids import content_id, text_id
from pairmill.flows.command.cli import main
from tests.worlds.line import rows
from tests.worlds.published import picture, published

N, TAKEN, OTHER = 6, 4, 2
# The function in which a removal is killed, by the state in which it leaves the lake.
KILLED_IN = {
    "committed": "catalog.upkeep.taken_items.delete_rows",
    "deleted": "tasks.upkeep.removal.remove_copies",
    "rewritten": "tasks.upkeep.removal.sweep",
    "swept": "tasks.upkeep.removal.refresh_statistics",
}
KEYS = {"documents": "document_id", "images": "image_id", "payloads": "sha256", "image_quality": "sha256",
        "captions": "sha256"}  # fmt: skip
DOCUMENTS = [text_id("document", str(n)) for n in range(N)]
REMOVAL = ["takedown", "--document", DOCUMENTS[TAKEN], "--yes"]


class Killed(BaseException):
    """End a command at a point where a kill would end its process."""


def kill(*_: object, **__: object) -> None:
    raise Killed


def killed_removal(lake: Path, state: str, removal: list[str] = REMOVAL) -> None:
    """Kill a removal, of one document by default, in ``state``."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(f"pairmill.{KILLED_IN[state]}", kill)
        main([*removal, "--lake", str(lake)])


def of_picture(n: int) -> dict[str, str]:
    """Return the keys of what one picture has in each table."""
    sha256 = content_id(picture(n))
    return {"documents": DOCUMENTS[n], "images": text_id("image", str(n))} | dict.fromkeys(
        ("payloads", "image_quality", "captions"), sha256
    )


def held(lake: Path) -> dict[str, set[str]]:
    """Return the keys of each table's rows."""
    with create_or_open(lake, read_only=True) as opened:
        return {table: {each for (each,) in opened.query(f"SELECT {key} FROM {table}")} for table, key in KEYS.items()}


def pictures_in(lake: Path) -> set[int]:
    """Return the pictures whose bytes are in any file at a lake, or in any of its Parquet files, known or not."""
    found = set()
    for path in (each for each in lake.rglob("*") if each.is_file()):
        values = [path.read_bytes()]
        if "payloads" in path.parts and path.suffix == ".parquet":
            values += [row["bytes"] for row in pq.read_table(path, columns=["bytes"]).to_pylist()]
        found |= {n for n in range(N) if any(picture(n) in value for value in values)}
    return found


def command(name: str, lake: Path) -> list[str]:
    """Return the command line of a command that writes to a lake."""
    if name == "import-scores":
        scores = {"sha256": [content_id(picture(n)) for n in range(N)], "beauty": [n / N for n in range(N)]}
        pq.write_table(pa.table(scores), lake.parent / "scores.parquet")
    lines = {
        "the same": REMOVAL,
        "another": ["takedown", "--document", DOCUMENTS[OTHER], "--yes"],
        "forget": ["forget", "--scorer", rows(lake, "SELECT max(scorer) FROM tags")[0][0], "--yes"],
        "drop": ["drop", "small@1", "--yes"],
        "import-scores": ["import-scores", str(lake.parent / "scores.parquet"), "--key", "sha256", "--name", "beauty"],
        "maintain": ["maintain"],
        "check": ["check", "--deep"],
        "repair": ["check", "--repair"],
        "lose rows": ["check", "--repair", "--lose-rows"],
    }
    return [*lines[name], "--lake", str(lake)]


COMMANDS = (
    "the same", "another", "forget", "drop", "import-scores", "maintain", "check", "repair", "lose rows",
)  # fmt: skip
# Each command once, each state twice or more. `make test-full` has all.
COVERING = {
    ("the same", "swept"), ("another", "rewritten"), ("forget", "committed"), ("drop", "swept"),
    ("import-scores", "deleted"), ("maintain", "rewritten"), ("check", "deleted"), ("repair", "swept"),
    ("lose rows", "committed"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "state"), [
    pytest.param(name, state, marks=pytest.mark.slow if (name, state) in COVERING else pytest.mark.full)
    for name in COMMANDS for state in KILLED_IN  # 36 times 7 CPU s
])  # fmt: skip
def test_after_a_killed_removal_a_command_loses_nothing_else_and_the_removal_is_finished(
    tmp_path: Path, name: str, state: str
) -> None:
    lake = tmp_path / "lake"
    published(lake, pictures=N, cap=N, image_rules=())
    expected = held(lake)
    killed_removal(lake, state)
    unfinished = state != "committed"
    # A check that may not write says that a removal is unfinished; the others do their work.
    assert main(command(name, lake)) == (3 if name == "check" and unfinished else 0)
    gone = {TAKEN} if unfinished or name == "the same" else set()
    gone |= {OTHER} if name == "another" else set()
    for table, keys in expected.items():
        keys -= {of_picture(n)[table] for n in gone}
    assert held(lake) == expected
    assert main(["maintain", "--lake", str(lake)]) == 0 and main(["check", "--deep", "--lake", str(lake)]) == 0
    assert held(lake) == expected and pictures_in(lake) == set(range(N)) - gone


@pytest.mark.slow
@pytest.mark.parametrize(("table", "whole"), [("image_quality", "made again"), ("pairs", "put back")])
def test_a_repair_finishes_a_killed_removal_that_a_damaged_file_hinders(
    tmp_path: Path, table: str, whole: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    published(lake, pictures=N, cap=N, image_rules=())
    killed_removal(lake, "deleted")
    with create_or_open(lake, read_only=True) as opened:
        file = Path(opened.data_path + snapshot.files(opened.unchecked, (table,))[0].data_file)
    before = file.read_bytes()
    file.write_bytes(before[:50] + bytes([before[50] ^ 1]) + before[51:])
    repair = ["check", "--repair", "--lake", str(lake)]
    assert main(repair) == (0 if whole == "made again" else 3)
    assert "removals are unfinished until the damage is repaired" in capsys.readouterr().out
    if whole == "put back":
        file.write_bytes(before)
        assert main(repair) == 0
    assert pictures_in(lake) == set(range(N)) - {TAKEN}


@pytest.mark.slow
@pytest.mark.usefixtures("own_temporary_files")
def test_a_killed_forget_is_finished_by_the_same_command_and_until_then_each_command_says_what_finishes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, place = tmp_path / "lake", ["--lake", str(tmp_path / "lake")]
    published(lake)
    forget = ["forget", "--scorer", rows(lake, "SELECT max(scorer) FROM tags")[0][0], "--yes"]
    killed_removal(lake, "deleted", forget)
    line = (
        f"1 removal is unfinished: what was deleted is still in the lake's files. `pairmill maintain {' '.join(place)}`"
    )
    export = ["export", "small", "--format", "texts", "--to", str(tmp_path / "out")]
    for each in (["status"], export):
        assert main([*each, *place]) == 0
        assert line in capsys.readouterr().out.replace("\n", " "), each
    assert main(["check", *place]) == 3
    assert "is unfinished: what it deleted is still in the files; `pairmill maintain`" in capsys.readouterr().out
    of_tags = lake / "data" / "main" / "tags"
    assert list(of_tags.rglob("*.parquet"))
    other = lake / f".spill-elsewhere-1-{'0' * 32}"
    other.mkdir()
    report = lake.parent / "report.json"
    assert main([*forget, *place, "--report", str(report)]) == 0
    told = capsys.readouterr().out
    assert "its rows are deleted; their bytes are still to be erased" in told
    assert f"not reached: {other}, which a process on elsewhere made" in told
    said = json.loads(report.read_text())
    (stays,) = said["not_reached"]
    assert str(other) in stays and said["rows"]["tags"] and said["reason"].endswith("are forgotten")
    assert not list(of_tags.rglob("*.parquet"))
    assert main(["check", "--deep", *place]) == 0 and main(["status", *place]) == 0
    assert "unfinished" not in capsys.readouterr().out
    assert main([*forget, *place]) == 1
    assert "has no rows, forgotten at 20" in capsys.readouterr().err
