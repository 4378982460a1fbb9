"""`pairmill check` names what is damaged in a lake and what it costs, and a repaired lake gives the same dataset."""

import os
import re
import shutil
from pathlib import Path

import pytest

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.schema import released
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.upkeep import damages
from pairmill.catalog.write import lease
from pairmill.catalog.write.sweep import checkpoint
from pairmill.flows.command.cli import main
from pairmill.tasks.upkeep import lake_check
from tests.worlds.generated import pages, small_settings
from tests.worlds.line import curate, rows, scored_twice, work_done

DIGESTS = "SELECT name, version, content_digest FROM datasets ORDER BY ALL"
OF_PAGES = ("documents", "images", "payloads", "sentences", "image_content", "sentence_content", "inputs")
SCORED = ("image_quality", "image_embedding", "sentence_quality", "perplexity", "captions", "synthetic", "tags",
          "image_similarity")  # fmt: skip
OVER_ALL = ("clusters", "image_groups", "sentence_edges", "match_candidates", "duplicate_edges")
TRAINED = ("centroids", "vector_index", "word_counts", "word_probabilities", "sentence_groups")


def files_of(lake: Path, table: str) -> list[Path]:
    with create_or_open(lake, read_only=True) as opened:
        return [Path(opened.data_path + file.data_file) for file in snapshot.files(opened.unchecked, (table,))]


def all_rows(lake: Path, *tables: str) -> dict[str, list[tuple]]:
    return {table: rows(lake, f"SELECT * FROM {table} ORDER BY ALL") for table in tables}


def flip_a_bit(file: Path) -> None:
    """Change one bit in the middle of a file, without a trace in its times."""
    before, data = file.stat(), bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def register_again(lake: Path, table: str, file: Path) -> None:
    """Register a copy of a worker's file, as a writer without the guard of `partitions` would."""
    copy = file.with_name("copy-of-" + file.name)
    shutil.copy(file, copy)
    with create_or_open(lake) as opened:
        opened.execute("CALL ducklake_add_data_files('lake', ?, ?)", (table, str(copy)))


def repaired(lake: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Repair a lake; return what the command printed."""
    assert main(["check", "--lake", str(lake), "--repair", *options]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_a_flipped_bit_a_deleted_file_and_a_doubled_partition_are_named_and_repaired_though_the_repair_is_killed(
    curated_copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    held = all_rows(curated_copy, "payloads", "images", "tags")
    flip_a_bit(files_of(curated_copy, "payloads")[0])
    files_of(curated_copy, "images")[2].unlink()
    register_again(curated_copy, "tags", files_of(curated_copy, "tags")[1])
    files_of(curated_copy, "captions")[0].unlink()
    assert main(["check", "--lake", str(curated_copy)]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("/")[0].split() for line in lines[:4]] == [
        ["gone", "captions"], ["gone", "images"], ["damaged", "payloads"], ["doubled", "tags"]
    ]  # fmt: skip
    assert " rows of 1 shard, " in lines[0] and "s of work; the next run does them again" in lines[0]
    assert lines[-1] == "--repair repairs 4 of 4"
    with monkeypatch.context() as patch:
        patch.setattr("pairmill.tasks.upkeep.repair._make_pending", killed)
        assert main(["check", "--lake", str(curated_copy), "--repair"]) == 130
    assert main(["check", "--lake", str(curated_copy)]) == 3
    capsys.readouterr()
    told = repaired(curated_copy, capsys)
    assert re.search(r"read 2 shards again: (\d+) of \1 rows of images, payloads", told)
    assert "captions: the next run" in told
    assert all_rows(curated_copy, *held) == held and scored_twice(curated_copy) == []
    assert main(["check", "--lake", str(curated_copy), "--deep"]) == 0


@pytest.mark.slow
def test_a_pipe_in_place_of_a_file_is_damage_and_holds_nobody_up(
    curated_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = files_of(curated_copy, "payloads")[0]
    file.unlink()
    os.mkfifo(file)
    assert main(["check", "--lake", str(curated_copy)]) == 3
    assert "it is no regular file" in capsys.readouterr().out


@pytest.mark.slow  # a run that does some of each step
@pytest.mark.parametrize(
    "tables",
    [
        (*OF_PAGES, *SCORED, *OVER_ALL, *TRAINED),
        pytest.param((*OF_PAGES, *SCORED), marks=pytest.mark.full),
        pytest.param(OVER_ALL, marks=pytest.mark.full),
        pytest.param(TRAINED, marks=pytest.mark.full),
    ],
)
def test_a_lost_file_of_any_table_but_the_published_is_made_again(
    curated_copy: Path, capsys: pytest.CaptureFixture[str], tables: tuple[str, ...]
) -> None:
    before = rows(curated_copy, DIGESTS)
    for table in tables:
        files_of(curated_copy, table)[0].unlink()
    # Without `inputs` a repair does not know what the pages were read from: the next run reads them again.
    repaired(curated_copy, capsys, *["--lose-rows"] * ("inputs" in tables))
    published, counts = curate(curated_copy, pages(), settings=small_settings())
    assert work_done(counts) and not published.is_new and rows(curated_copy, DIGESTS) == before
    assert scored_twice(curated_copy) == [] and main(["check", "--lake", str(curated_copy), "--deep"]) == 0


@pytest.mark.slow
def test_a_lost_file_that_was_merged_of_many_is_made_again(
    curated_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = all_rows(curated_copy, "images", "payloads", "sentences")
    with create_or_open(curated_copy) as lake, lease.writing(lake, "run", "merge") as writer:
        checkpoint(writer)
    assert main(["check", "--lake", str(curated_copy), "--deep"]) == 0
    n = len(rows(curated_copy, "SELECT 1 FROM image_quality"))
    scores = ("image_quality", "image_embedding")
    for table in (*held, *scores):
        (file,) = files_of(curated_copy, table)
        file.unlink() if table == "images" else flip_a_bit(file)
    assert main(["check", "--lake", str(curated_copy)]) == 3
    told = repaired(curated_copy, capsys)
    assert all(re.search(rf"damaged +{table}/", told) for table in ("payloads", "sentences", "image_embedding"))
    assert f"image_quality: the next run does {n:,} rows again" in told
    assert all_rows(curated_copy, *held, *scores) == {**held, "image_quality": [], "image_embedding": []}
    assert main(["check", "--lake", str(curated_copy)]) == 0


@pytest.mark.slow
def test_what_only_a_copy_has_is_named_and_left_alone(curated_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = files_of(curated_copy, "pairs")
    data = file.read_bytes()
    file.write_bytes(data[:-9])
    assert main(["check", "--lake", str(curated_copy), "--repair"]) == 3
    assert "put the file back from a copy of the lake" in capsys.readouterr().out
    file.write_bytes(data)
    assert main(["check", "--lake", str(curated_copy)]) == 0


@pytest.mark.slow
def test_pictures_whose_page_has_changed_are_given_up_only_when_that_is_asked_for(
    curated_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, away = files_of(curated_copy, "payloads")[0], tmp_path / "away"
    held = rows(curated_copy, "SELECT sha256 FROM payloads ORDER BY ALL")
    file.rename(away)
    with create_or_open(curated_copy) as lake:
        lake.execute("UPDATE inputs SET etag = 'of a page that has changed'")
    assert main(["check", "--lake", str(curated_copy), "--repair"]) == 3
    told = capsys.readouterr().out
    assert "left as it is: shard" in told and "2 of its 2 units: they have changed in" in told
    assert "or give these rows up: --lose-rows" in told
    shutil.copy(away, file)
    assert main(["check", "--lake", str(curated_copy), "--deep"]) == 0
    assert rows(curated_copy, "SELECT sha256 FROM payloads ORDER BY ALL") == held
    file.unlink()
    assert main(["check", "--lake", str(curated_copy), "--repair", "--lose-rows"]) == 0
    assert "lost: shard" in capsys.readouterr().out
    assert len(rows(curated_copy, "SELECT sha256 FROM payloads")) < len(held)


@pytest.mark.slow
def test_a_scored_picture_keeps_its_home_shard_though_the_rows_of_that_shard_are_lost(curated_copy: Path) -> None:
    repeated = "SELECT sha256, c.shard FROM image_content c JOIN images i USING (sha256) WHERE i.shard <> c.shard"
    sha256, home = rows(curated_copy, f"{repeated} ORDER BY ALL LIMIT 1")[0]
    paths = "SELECT path FROM partitions WHERE shard = ? AND \"table\" IN ('images', 'inputs')"
    with create_or_open(curated_copy, read_only=True) as lake:
        lost = [Path(lake.data_path + path) for (path,) in lake.query(paths, (home,))]
    for file in [*lost, *files_of(curated_copy, "image_content")]:
        file.unlink()
    assert main(["check", "--lake", str(curated_copy), "--repair", "--lose-rows"]) == 0
    assert rows(curated_copy, f"SELECT shard FROM image_content WHERE sha256 = '{sha256}'") == [(home,)]


@pytest.mark.slow
def test_a_whole_lake_is_checked_beside_a_run_that_writes(curated_copy: Path) -> None:
    with create_or_open(curated_copy) as lake, lease.writing(lake, "run", "work"):
        lake.execute("INSERT INTO bans VALUES ('x', 'y', now())")
        assert main(["check", "--lake", str(curated_copy)]) == 0


def test_a_lake_without_its_disk_is_one_damage(curated_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_check, "MOST", 5)
    for file in files_of(curated_copy, "vector_index")[:7]:
        file.unlink()
    assert main(["check", "--lake", str(curated_copy)]) == 1


def test_every_table_says_what_makes_its_lost_rows_again() -> None:
    found = {damages.redone_by(table) for table in released()}
    assert found == {"source", "run", "whole", "home", "copy"}
    assert {damages.redone_by(score.table) for score in declared()} == {"run"}
    only_copied = {table for table in released() if damages.redone_by(table) == "copy"}
    assert {"pairs", "decisions", "partitions", "bans"} <= only_copied
    assert not only_copied & {*OF_PAGES, *SCORED, *OVER_ALL, *TRAINED}
