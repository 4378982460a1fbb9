"""An index whose files are merged by cluster range gives what its own files give, after kills and removals too."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import s3fs

from infra import scale
from infra.bench.measure import exponent
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending import row_files
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.row_files import index_files
from pairmill.catalog.pending.training import SENTENCES
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.terms.error import Damaged
from pairmill.catalog.write import lease
from pairmill.catalog.write.lease import Writer, commit_stream
from pairmill.flows.run.settings import load_recipe
from pairmill.tasks.relate.associate import Search, search
from pairmill.tasks.run.items import index_rows
from pairmill.tasks.run.items.index_rows import MergeIndex, groups, read_range, split_merged
from pairmill.tasks.run.items.partition import Job, Output, Part, write_parts
from pairmill.tasks.run.items.rows import to_blobs
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.session import Session
from pairmill.tasks.upkeep.removal import erase
from tests.worlds.elsewhere import s3 as s3
from tests.worlds.elsewhere import write_yaml
from tests.worlds.shared import opened_new

K, WIDTH = 20, 8
SENTENCE_INDEX, ROUTE_INDEX, CENTROIDS = "a" * 32, "b" * 32, "c" * 32


@dataclass
class Here(Session):
    """A session whose jobs run in this process, and which commits a step at once.

    Each search of merged files is compared with one of the index's own files.
    """

    found: list[int] = field(default_factory=list)

    def work(self, step: str, items: Sequence[WorkItem], job: Job, most_workers: int = 0) -> int:
        self.counts[step] = self.counts.get(step, 0) + len(items)
        output = self.begin(step)
        manifests = [each for item in items for each in write_parts(self.parts(item, job), item, output)]
        commit_stream(self.writer, [manifests])
        return len(items)

    def parts(self, item: WorkItem, job: Job) -> Iterable[Part]:
        parts = list(job(item))
        if isinstance(job, Search):
            own = [index_files(self.lake, scorer) for scorer in (SENTENCE_INDEX, ROUTE_INDEX)]
            (twin,) = job(replace(item, inputs=item.inputs | {"files": own}))
            assert rows_of(parts[0].rows) == rows_of(twin.rows)
            self.found.append(twin.rows.num_rows)
        return parts


@contextmanager
def searching(folder: Path) -> Iterator[Here]:
    """A session over a lake of its own with centroids of K clusters, whose index is never read whole."""
    plan = compile_plan(load_recipe("demo", {"association.recall": "null", "sentence_duplicates": "null"}))
    of_plan = {SENTENCES.clusters: SENTENCE_INDEX, "image_routes": ROUTE_INDEX, SENTENCES.centroids: CENTROIDS}
    for name, digest in of_plan.items():
        plan = plan.with_scorer(name, digest)
    with opened_new(folder) as lake, lease.writing(lake, "run", "test") as writer:
        held = Here(writer, plan, Placement())
        rows = {"kind": ["sentence"] * K, "cluster": pa.array(range(K), pa.int32()),
                "vector": to_blobs(np.eye(K, WIDTH)), "n": pa.array([100] * K, pa.int64())}  # fmt: skip
        held.store("train", WorkItem("sentence", ()), [Part("centroids", pa.table(rows), CENTROIDS)])
        yield held


def index_file(rng: np.random.Generator, name: str, n: int) -> pa.Table:
    """Rows of ``vector_index`` as an assignment writes them: some clusters have none, and one has many."""
    vectors = rng.standard_normal((n, WIDTH))
    clusters = np.sort(np.where(rng.random(n) < 0.3, rng.integers(0, K), rng.integers(0, K, n)))
    keys = [f"{name}-{row:04}" for row in range(n)]
    rows = {"key": keys, "cluster": pa.array(clusters, pa.int32()), "probe": pa.array([0] * n, pa.int32())}
    return pa.table(rows | {"index_vector": to_blobs(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))})


def night(held: Here, seed: int, files: int) -> None:
    """Add ``files`` files to each index, and search."""
    rng = np.random.default_rng(seed)
    names = [(f"{kind}{seed}.{n}", digest) for kind, digest in (("s", SENTENCE_INDEX), ("p", ROUTE_INDEX))
             for n in range(files)]  # fmt: skip
    rows = {name: Part("vector_index", index_file(rng, name, int(rng.integers(1, 400))), digest)
            for name, digest in names}  # fmt: skip
    held.work("assign", [WorkItem(name, ()) for name in rows], lambda item: [rows[item.shard]])
    search(held)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=str)


def below(lake: Lake) -> list[Path]:
    return sorted(Path(lake.data_path, index_rows.FOLDER).glob("*"))


@pytest.fixture
def merging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge small indices, several times in a few nights, and all anew at last."""
    monkeypatch.setattr(row_files, "SMALL_BYTES", 0)
    for name, value in (("FEWEST", 3), ("MOST", 5), ("MERGED", 2), ("MOST_MERGED", 3)):
        monkeypatch.setattr(index_rows, name, value)


@pytest.mark.slow
@pytest.mark.usefixtures("merging")
@pytest.mark.parametrize("seed", range(2))
def test_searches_of_a_merged_index_find_what_its_own_files_give_night_by_night_and_after_a_removal(
    tmp_path: Path, seed: int
):
    with searching(tmp_path / "lake") as held:
        for at, files in enumerate((4, 7, 1, 9)):
            night(held, 100 * seed + at, files)
            if at == 1:
                ((key, vector),) = held.lake.query(
                    "SELECT key, index_vector FROM vector_index ORDER BY md5(key) LIMIT 1"
                )
                assert any(key.encode() in path.read_bytes() for path in below(held.lake))
                held.lake.execute("DELETE FROM vector_index WHERE key = ?", (key,))
                erase(held.writer)
                left = [path.read_bytes() for path in below(held.lake)]
                assert left and not any(key.encode() in data or vector in data for data in left)
        assert sum(held.found) > 100
        assert held.counts["merge index files"] > len(below(held.lake)) / 2 > 0  # some were merged anew


def five_files(writer: Writer) -> tuple[str, ...]:
    """Commit five files to the index; return their paths."""
    rng = np.random.default_rng(0)
    output = Output(writer.lake.data_path, "run", writer.begin("assign"))
    parts = [Part("vector_index", index_file(rng, f"s{n}", 300), SENTENCE_INDEX) for n in range(5)]
    writer.commit([each for n, part in enumerate(parts) for each in write_parts([part], WorkItem(str(n), ()), output)])
    return index_files(writer.lake, SENTENCE_INDEX).paths


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[Lake, tuple[str, ...]]]:
    """Make a lake whose index has five files; return it with their paths."""
    with opened_new(tmp_path / "lake") as lake, lease.writing(lake, "run", "test") as writer:
        yield lake, five_files(writer)


LASTS = (4, 5, 11, K - 1)


def merge(lake: Lake, paths: tuple[str, ...]) -> str:
    """Merge index files into one; return its path."""
    MergeIndex(lake.data_path, LASTS)(WorkItem("merge", (), paths))
    (path,), loose = split_merged(lake, paths)
    assert not loose
    return path


def test_a_merge_that_was_killed_is_ignored_and_the_next_one_leaves_nothing_of_it(
    index: tuple[Lake, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
):
    lake, paths = index
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(index_rows.json, "dumps", killed)  # all rows are written, the manifest is not
        MergeIndex(lake.data_path, LASTS)(WorkItem("merge", (), paths))
    (half,) = below(lake)
    half.with_name(f"{half.name}{index_rows.MANIFEST}").write_text('{"sources": ["main/vec')
    assert split_merged(lake, paths) == ([], list(paths)) and not below(lake)
    check_merged(lake, paths)


def check_merged(lake: Lake, paths: tuple[str, ...]) -> None:
    """Merge the files; check that each range has the same rows as in the files."""
    whole = merge(lake, paths)
    for first, last in zip((0, *(last + 1 for last in LASTS)), LASTS, strict=False):
        given = (read_range(each, index_rows.COLUMNS, (first, last), False) for each in ((whole,), paths))
        merged, own = (rows_of(rows) for rows in given)
        assert merged == own and (merged or first == 5)


@pytest.mark.slow
def test_an_index_on_s3_is_merged_there_and_a_removal_removes_the_merged_file(s3: s3fs.S3FileSystem, tmp_path: Path):
    place = write_yaml(tmp_path / "lake", data_path="s3://bucket/lake")
    with create_or_open(place) as lake, lease.writing(lake, "run", "test") as writer:
        check_merged(lake, five_files(writer))
        assert len(s3.ls("bucket/lake/.index", refresh=True)) == 2
        lake.execute("DELETE FROM vector_index WHERE key = 's1-0007'")
        erase(writer)
        assert not [path for path in s3.find("bucket/lake", refresh=True) if "/.index/" in path]


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_merged_file_of_other_bytes_is_damaged_and_one_that_does_not_fit_its_manifest_is_merged_anew(
    index: tuple[Lake, tuple[str, ...]],
):
    lake, paths = index
    file = Path(merge(lake, paths))
    data, manifest = file.read_bytes(), file.with_name(f"{file.name}{index_rows.MANIFEST}")
    file.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
    assert read_range((str(file),), ["key"], (0, 4), False).num_rows  # another block of the same file
    with pytest.raises(Damaged, match=r"other bytes than were merged.*delete its folder"):
        read_range((str(file),), ["key"], (12, K - 1), False)
    told = json.loads(manifest.read_text())
    cases = [
        (data + b"more", told),
        (data, told | {"sources": told["sources"][1:]}),
        (data, told | {"sources": [*told["sources"][1:], "main/vector_index/of/another/lake.parquet"]}),
        (data, told | {"lasts": [4, 6, 11, K - 1]}),
        (data, {"sources": told["sources"]}),
    ]
    for content, other in cases:
        file.write_bytes(content)
        manifest.write_text(json.dumps(other))
        assert split_merged(lake, paths) == ([], list(paths)) and not below(lake)
    with pytest.raises(Damaged):  # ranges of another size
        read_range((merge(lake, paths),), ["key"], (6, K - 1), False)


def test_a_search_at_the_size_of_realsyn_opens_two_million_files_at_most_and_grows_no_faster_than_its_rows():
    def opens(files: int, ranges: int) -> int:
        merges = groups([str(n) for n in range(files)])
        assert all(index_rows.FEWEST <= len(each) <= index_rows.MOST for each in merges)
        return ranges * (len(merges) + files - sum(map(len, merges)))

    sizes = [5_000, 10_000, 20_000]
    counts = [float(opens(files, round(files * scale.ASSIGNED / 125_000))) for files in sizes]
    assert exponent(sizes, counts) <= 1.1 and counts[-1] < 2e6 < sizes[-1] ** 2 / 64
    searched = scale.MEANINGFUL, scale.IMAGES * scale.assumed("share of pictures that pass the cheap rules")
    files = [round(n / scale.ASSIGNED) for n in searched]
    ranges = round(scale.ranges(scale.MEANINGFUL))
    assert sum(files) * ranges > 90e6 and sum(opens(n, ranges) for n in files) < 1e6
