"""`pairmill takedown` leaves nothing of what it removes: not in rows, files, free pages, caches, nor in a later run."""

import io
import json
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import s3fs
from PIL import Image

from pairmill.catalog.cut.facts import facts_folder
from pairmill.catalog.lake.connection import connect
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.location import locate
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.row_files import index_files
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.gallery.gallery_file import gallery_file
from pairmill.catalog.queries.gallery.image_vectors import image_vectors
from pairmill.catalog.terms.ids import content_id
from pairmill.catalog.upkeep.amended_versions import changed_versions, is_as_published
from pairmill.catalog.upkeep.taken_items import Subject
from pairmill.catalog.write import lease
from pairmill.catalog.write.recorded_removals import unfinished_removals
from pairmill.flows.command.cli import main
from pairmill.flows.maintain import Limits, maintain_steps
from pairmill.ops.ban_list import NEAR_BITS, perceptual_hash
from pairmill.tasks.release.gallery.thumbnails import ThumbnailCache
from pairmill.tasks.run.items.index_rows import MergeIndex
from pairmill.tasks.upkeep.removal import take_down
from tests.reference.second_cut import differences
from tests.worlds.elsewhere import postgres as postgres
from tests.worlds.elsewhere import s3 as s3
from tests.worlds.elsewhere import write_yaml
from tests.worlds.generated import pages, small_settings
from tests.worlds.kept_tables import NOT_REMOVED
from tests.worlds.line import curate, rows
from tests.worlds.published import SENTENCES, picture, published

PROOF = "they keep items out, or prove what was removed"
# `published` writes the texts of a document without a row of its own.
ROW_OF_D = (
    "INSERT INTO documents (document_id, source, uri, shard) VALUES ('d', 's', 'https://example.org/d', 'shard-0')"
)
_DATA_URI = re.compile(rb"data:image/[a-z+]+;base64,([A-Za-z0-9+/=]+)")


def stored(lake: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield (file, bytes) for every file at a lake, and for every value of its Parquet files, unreferenced ones too."""
    for path in sorted(lake.rglob("*")):
        if path.is_file():
            yield path, path.read_bytes()
            if path.suffix == ".parquet":
                for row in pq.read_table(path).to_pylist():
                    for value in row.values():
                        yield path, value if isinstance(value, bytes) else str(value).encode()


def found_in(lake: Path, markers: list[bytes]) -> set[str]:
    """Return the names of the files that hold a marker. A file's values are searched as one text, not one by one."""
    held: dict[Path, list[bytes]] = {}
    for path, data in stored(lake):
        held.setdefault(path, []).append(data)
    texts = {path: b"\0".join(values) for path, values in held.items()}
    return {path.name for path, text in texts.items() if any(marker in text for marker in markers)}


def vectors_of(lake: Path, table: str, column: str, key: str, ids: set[str]) -> list[bytes]:
    """Return the vectors of these items, as fp16 and as fp32; a vector that another item has too is left out."""
    found = rows(lake, f"SELECT {key}, {column} FROM {table} WHERE {column} IS NOT NULL")
    others = {vector for item, vector in found if item not in ids}
    mine = [np.frombuffer(vector, "<f2") for item, vector in found if item in ids and vector not in others]
    return [vector.astype(kind).tobytes() for vector in mine for kind in ("<f2", "<f4")]


def columns_with(lake: Path, values: set[object]) -> set[str]:
    """Return ``table.column`` of every row that has one of these values, of tables that neither ban nor prove."""
    found = set()
    with create_or_open(lake, read_only=True) as opened:
        for table in sorted(opened.tables - set(NOT_REMOVED[PROOF])):
            for row in opened.rows(f"SELECT * FROM {table}"):
                for column, value in row.items():
                    if isinstance(value, str | int) and value in values:
                        found.add(f"{table}.{column}")
    return found


def pictures_in(lake: Path) -> Iterator[int]:
    """Yield the perceptual hash of every picture at a lake: of files, of `payloads`, and inside of reports."""
    for path, data in stored(lake):
        is_one = path.suffix in (".jpg", ".webp", ".parquet") and len(data) > 60  # the shortest has more bytes
        if is_one and (found := perceptual_hash(data)) is not None:
            yield found
        if path.suffix == ".html":
            yield from (h for match in _DATA_URI.findall(data) if (h := perceptual_hash(b64decode(match))) is not None)


def unseen(lake: Lake) -> list[tuple[str, str]]:
    """Return the (table, column) whose smallest or largest text a query for it does not find: its bounds are wrong."""
    texts = lake.query(
        "SELECT table_name, list(column_name) FROM duckdb_columns() WHERE database_name = 'lake' "
        "AND data_type = 'VARCHAR' AND table_name IN (SELECT table_name FROM duckdb_tables() "
        "WHERE database_name = 'lake') GROUP BY table_name"
    )
    found = []
    for table, columns in texts:
        # Joined with '', a column has no bounds.
        ends = [f"[min(\"{column}\" || ''), max(\"{column}\" || '')]" for column in columns]
        of_columns = zip(columns, lake.query(f'SELECT {", ".join(ends)} FROM "{table}"')[0], strict=True)
        for column, text in ((column, text) for column, pair in of_columns for text in pair if text is not None):
            if not lake.query(f'SELECT 1 FROM "{table}" WHERE "{column}" = ? LIMIT 1', (text,)):
                found.append((table, column))
    return found


@pytest.mark.slow  # 45 s: a run, then every byte of the lake is decoded twice
def test_nothing_of_a_document_is_left_anywhere_and_it_does_not_come_in_again(
    curated_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["maintain", "--lake", str(curated_copy)]) == 0  # joins its small files with others
    # The document with the last of all texts: DuckLake keeps a column's largest value beside the rows.
    last = "SELECT document_id FROM sentences ORDER BY text DESC LIMIT 1"
    document, uri, title = rows(
        curated_copy, f"SELECT document_id, uri, title FROM documents WHERE document_id = ({last})"
    )[0]
    alone = f"SELECT content FROM sentences GROUP BY content HAVING bool_and(document_id = '{document}')"
    texts = [
        text
        for (text,) in rows(curated_copy, f"SELECT DISTINCT text FROM sentences SEMI JOIN ({alone}) USING (content)")
    ]
    mine = f"SELECT sha256 FROM images GROUP BY sha256 HAVING bool_and(document_id = '{document}')"
    found = rows(curated_copy, f"SELECT sha256, bytes, shard FROM payloads SEMI JOIN ({mine}) USING (sha256)")
    pictures = {sha256 for sha256, _, _ in found}
    contents = {content for (content,) in rows(curated_copy, alone)}
    generated = (
        f"SELECT text FROM captions SEMI JOIN ({mine}) USING (sha256) UNION SELECT synthetic_text FROM synthetic "
        f"SEMI JOIN ({mine}) USING (sha256) EXCEPT (SELECT text FROM captions ANTI JOIN ({mine}) USING (sha256) UNION "
        f"SELECT synthetic_text FROM synthetic ANTI JOIN ({mine}) USING (sha256))"
    )
    texts += [text for (text,) in rows(curated_copy, generated) if text and len(text) > 5]
    of_pictures = vectors_of(curated_copy, "image_embedding", "image_vector", "sha256", pictures)
    of_sentences = vectors_of(curated_copy, "sentence_embedding", "sentence_vector", "content", contents)
    assert of_pictures and of_sentences
    markers = [text.encode() for text in (*texts, title)] + [data for _, data, _ in found] + of_pictures + of_sentences
    occurrences = rows(curated_copy, f"SELECT image_id FROM images WHERE document_id = '{document}'")
    ids = {document, *pictures, *contents, *(image_id for (image_id,) in occurrences)}
    seen = rows(curated_copy, f"SELECT phash FROM image_hash SEMI JOIN ({mine}) USING (sha256) EXCEPT "
                f"SELECT phash FROM image_hash ANTI JOIN ({mine}) USING (sha256)")  # fmt: skip
    values: set[object] = ids | {phash for (phash,) in seen if phash}
    with create_or_open(curated_copy) as lake:
        ThumbnailCache(lake).make({sha256: shard for sha256, _, shard in found}, "small")
        gallery_file(lake, datasets.find(lake, "demo"))
        assert image_vectors(lake, None)
        for (scorer,) in lake.query("SELECT DISTINCT scorer FROM vector_index"):
            MergeIndex(lake.data_path, (10**9,))(WorkItem("merge", (), index_files(lake, scorer).paths))
    assert main(["report", "demo", "--lake", str(curated_copy)]) == 0
    assert main(["export", "demo", "--to", str(tmp_path / "export"), "--lake", str(curated_copy)]) == 0
    assert len(found_in(curated_copy, markers)) > 5 and texts and found
    assert any("." not in name for name in found_in(curated_copy, of_sentences))  # of the merged index
    assert {"vector_index.key", "image_hash.phash", "captions.sha256"} < columns_with(curated_copy, values)
    hashes = [h for _, data, _ in found if (h := perceptual_hash(data)) is not None]

    report = tmp_path / "removal.json"
    capsys.readouterr()
    command = ["takedown", "--document", document, "--yes", "--report", str(report)]
    assert main([*command, "--lake", str(curated_copy)]) == 0
    told = capsys.readouterr().out
    assert (
        re.search(r"demo@1: \d+ pairs taken out, \d+ lost a text", told) and "not reached: copies and backups" in told
    )

    assert f"still holds it: {tmp_path / 'export'}" in told
    assert found_in(curated_copy, markers) == set()
    # A group keeps its name, which is the smallest id of those that were in it.
    assert columns_with(curated_copy, values) <= {
        "image_groups.group_id",
        "sentence_groups.group_id",
        "decisions.value",
    }
    others = rows(curated_copy, "SELECT bytes FROM payloads")
    kept = {perceptual_hash(data) for (data,) in others}
    assert not {h for h in pictures_in(curated_copy)} & (set(hashes) - kept)
    assert main(["check", "--deep", "--lake", str(curated_copy)]) == 0

    said = json.loads(report.read_text())
    assert said["documents"] == [document] and set(said["pictures"]) == {sha256 for sha256, _, _ in found}

    # The same pages again, one of them changed, so that it is read anew.
    with create_or_open(curated_copy) as lake:
        lake.execute("UPDATE inputs SET etag = 'of another time' WHERE uri = ?", (uri,))
        lake.execute("DELETE FROM taken_bans WHERE kind = 'document'")  # as if another reader gave it another id
    curate(curated_copy, pages(), settings=small_settings())
    assert found_in(curated_copy, [text.encode() for text in texts] + [data for _, data, _ in found]) == set()
    assert rows(curated_copy, f"SELECT reason FROM quarantine WHERE item = '{uri}'") == [("banned",)]


@pytest.mark.slow  # 15 s: two removals rewrite most files
def test_an_amended_version_is_verified_and_any_other_change_of_it_shows(curated_copy: Path) -> None:
    sha256, text = rows(curated_copy, "SELECT sha256, text1 FROM pairs ORDER BY image_id LIMIT 1")[0]
    with create_or_open(curated_copy, read_only=True) as reader:
        of_trials = facts_folder(reader) / "a trial cut.duckdb"
        of_trials.write_bytes(b"rows with addresses and texts")
    with create_or_open(curated_copy) as lake:
        done = take_down(lake, Subject(pictures=(sha256,)), "test", curated_copy / "reports")
        assert not of_trials.exists()
        assert [(each["dataset"], each["pairs_removed"]) for each in done["versions"]] == [("demo@1", 1)]
        dataset = datasets.find(lake, "demo@1")
        assert dataset.amended and is_as_published(lake, dataset) and differences(lake, dataset) == {}
        second = rows(curated_copy, "SELECT document_id FROM pairs ORDER BY image_id DESC LIMIT 1")[0][0]
        take_down(lake, Subject(documents=(second,)), "test", curated_copy / "reports")  # removals add up
        dataset = datasets.find(lake, "demo@1")
        assert is_as_published(lake, dataset) and differences(lake, dataset) == {}
        lake.execute("UPDATE pairs SET text1 = 'another text' WHERE text1 <> ?", (text,))
        assert [each.detail for each in changed_versions(lake)] == [
            "the pairs of demo@1 are not those that were published"
        ]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A lake of six pictures, whose sentences stand in a document `d`."""
    published(tmp_path / "lake", pictures=6)
    with create_or_open(tmp_path / "lake") as lake:
        lake.execute(ROW_OF_D)
    return tmp_path / "lake"


@pytest.mark.slow
def test_a_takedown_that_was_killed_is_finished_by_the_next_maintenance(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((data, sha256),) = rows(small, "SELECT bytes, sha256 FROM payloads ORDER BY sha256 LIMIT 1")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with create_or_open(small) as lake:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("pairmill.tasks.upkeep.removal.remove_copies", killed)
            take_down(lake, Subject(pictures=(sha256,)), "test", small / "reports")
        assert found_in(small, [data]) and unfinished_removals(lake)
        assert any(line.startswith("finished 1 removals") for line in maintain_steps(lake, Limits()))
        assert not unfinished_removals(lake)
        with lease.writing(lake, "run-after", "test"):
            lake.execute("INSERT INTO partitions (\"table\", partition_id, shard, scorer) VALUES ('m', 'm', 'm', 'm')")
        assert not unseen(lake)
    assert found_in(small, [data]) == set()


@pytest.mark.slow
@pytest.mark.usefixtures("own_temporary_files")
def test_a_takedown_beside_a_reader_is_finished_when_the_reader_has_gone(curated_copy: Path) -> None:
    ((text, document),) = rows(
        curated_copy, "SELECT text, document_id FROM sentences ORDER BY length(text) DESC, text LIMIT 1"
    )
    begin = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('BEGIN')"
    read = "c.execute('SELECT count(*) FROM sqlite_master').fetchone(); print('reads', flush=True); input()"
    with create_or_open(curated_copy) as lake:
        reader = subprocess.Popen(
            [sys.executable, "-c", f"{begin}; {read}", locate(str(curated_copy)).metadata],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert reader.stdout and reader.stdout.readline() == "reads\n"
        done = take_down(lake, Subject(documents=(document,)), "test", curated_copy / "reports")
        assert done["erased"]["why"] and list(unfinished_removals(lake)) == [done["takedown"]]
        told = [line for line in maintain_steps(lake, Limits()) if "removals" in line]
        assert told == [f"1 removals wait for the catalog's old pages: {done['erased']['why']}"]
        reader.communicate("\n")
        assert any(line.startswith("finished 1 removals") for line in maintain_steps(lake, Limits()))
        assert not unfinished_removals(lake)
        assert found_in(curated_copy, [text.encode()]) == set()  # in the write-ahead log of the open lake neither
        ((report,),) = lake.query("SELECT report FROM takedowns")
    now = json.loads(report)
    assert now == done | {"erased": done["erased"] | now["erased"]}


@pytest.mark.slow
def test_pictures_that_look_like_one_are_listed_and_go_only_by_their_number(
    curated_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ((data, sha256),) = rows(curated_copy, "SELECT bytes, sha256 FROM payloads SEMI JOIN image_hash USING (sha256) "
                             "ORDER BY sha256 LIMIT 1")  # fmt: skip
    copy = tmp_path / "copy.webp"
    Image.open(io.BytesIO(data)).convert("RGB").resize((200, 160)).save(copy)
    like = ["takedown", "--like", str(copy), "--lake", str(curated_copy)]
    assert main([*like, "--yes", "999"]) == 1
    listed = re.findall(r"^([0-9a-f]{32})  (\d+) of 64 bits differ", capsys.readouterr().out, re.MULTILINE)
    assert sha256 in [each for each, _ in listed] and all(int(bits) <= NEAR_BITS for _, bits in listed)
    assert main([*like, "--yes", str(len(listed))]) == 0
    left = {found for (found,) in rows(curated_copy, "SELECT sha256 FROM payloads")}
    assert not left & {each for each, _ in listed}


@pytest.mark.slow  # 15 s: a Postgres server, and a rewrite of each file on S3
def test_a_team_lake_on_s3_and_postgres_keeps_nothing_in_objects_and_tables(
    s3: s3fs.S3FileSystem, postgres: str, tmp_path: Path
) -> None:
    folder = write_yaml(tmp_path / "lake", metadata=postgres, data_path="s3://bucket/team")
    last = "Zw, the last of all texts."  # Postgres holds a column's largest value too
    published(folder, pictures=12, sentences=(*SENTENCES, last))
    text, bytes_of = last.encode(), picture(4)

    def held() -> list[str]:
        s3.invalidate_cache()
        objects = [
            path
            for path in s3.find("bucket")
            if path.endswith(".parquet") and _holds(bytes(s3.cat_file(path)), text, bytes_of)
        ]
        base = Path(_postgres(postgres, "")) / "base"
        return objects + [str(path) for path in base.rglob("*") if path.is_file() and text in path.read_bytes()]

    assert len(held()) > 2
    with create_or_open(folder) as lake:
        taken = Subject(pictures=(content_id(bytes_of),), documents=("d",))
        lake.execute(ROW_OF_D)
        done = take_down(lake, taken, "test", folder / "reports")
        assert done["removed"]["sentences"] == len(SENTENCES) + 1 and done["erased"]["why"] == ""
        _postgres(postgres, "CHECKPOINT")
        assert held() == []
        assert lake.query("SELECT count(*) FROM pairs WHERE text1 IS NOT NULL") == [(0,)]


def _postgres(url: str, command: str) -> str:
    """Run a command at a Postgres server, and return its data folder."""
    connection = connect("postgres_scanner")
    connection.execute(f"ATTACH '{url}' AS server (TYPE postgres)")
    if command:
        connection.execute(f"CALL postgres_execute('server', '{command}', use_transaction => false)")
    setting = "SELECT setting FROM pg_settings WHERE name = ''data_directory''"
    ((folder,),) = connection.execute(f"SELECT * FROM postgres_query('server', '{setting}')").fetchall()
    return folder


def _holds(data: bytes, text: bytes, picture_bytes: bytes) -> bool:
    """Return whether a Parquet file's bytes, or its values, hold the text or the picture."""
    values = [str(v).encode() if not isinstance(v, bytes) else v
              for row in pq.read_table(io.BytesIO(data)).to_pylist() for v in row.values()]  # fmt: skip
    return any(text in each or picture_bytes in each for each in (data, *values))


@pytest.mark.slow
def test_a_run_at_work_is_waited_for_and_a_preview_changes_nothing(
    curated_copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairmill.tasks.upkeep.removal.WAIT_SECONDS", 0.1)
    before = rows(curated_copy, "SELECT count(*), bit_xor(hash(p)) FROM pairs p")
    named = ["takedown", "--url", str(pages()) + "/", "--lake", str(curated_copy)]
    assert main([*named, "--dry-run"]) == 0
    assert "18 documents" in capsys.readouterr().out
    with create_or_open(curated_copy) as lake, lease.writing(lake, "run", "curate"):
        assert main([*named, "--yes"]) == 1
    assert rows(curated_copy, "SELECT count(*), bit_xor(hash(p)) FROM pairs p") == before
