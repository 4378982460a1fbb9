"""A recipe with `association.top_k: 5` has five texts a pair wherever a pair is; one with three has three as ever."""

import io
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from infra.bench.conform import released_texts
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare import version_diff
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.upkeep.amended_versions import is_as_published
from pairmill.catalog.upkeep.taken_items import Subject
from pairmill.catalog.write import lease
from pairmill.flows.api.opened_lake import open_lake
from pairmill.tasks.release.export.export import export
from pairmill.tasks.upkeep.removal import take_down
from tests.reference.second_cut import differences
from tests.worlds.commands import Tell
from tests.worlds.published import REALSYN, SENTENCES, plan_of, published

N = 6
SIX = (*SENTENCES, "A green kite hangs in a tree.", "The baker sweeps the floor.", "Rain fell on the slates all night.")
FIVE = [f"text{n}" for n in range(1, 6)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A lake of `small@1` with five texts a pair and `small@2` with three, of the same candidates."""
    published(tmp_path / "lake", pictures=N, sentences=SIX, cap=N, image_rules=(), top_k=5)
    plan, _ = plan_of(N, (), True, True)
    with create_or_open(tmp_path / "lake") as opened, lease.writing(opened, "run-2", "test") as writer:
        cut(opened, plan)
        publish(opened, plan, "run-2", 0.9, lambda: writer.begin("publish"))
    return tmp_path / "lake"


@pytest.fixture
def lake(place: Path) -> Iterator[Lake]:
    with create_or_open(place) as opened:
        yield opened


def samples(folder: Path) -> list[dict[str, bytes]]:
    """Return the members of each sample of the tars in a folder, by their ending."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as tar:
            for member in tar:
                name, _, ending = member.name.partition(".")
                found.setdefault(name, {})[ending] = tar.extractfile(member).read()  # pyright: ignore
    return [*found.values()]


@pytest.mark.slow
def test_five_texts_are_in_the_pairs_the_figures_and_the_pages_of_a_version(place: Path, lake: Lake, tell: Tell):
    assert lake.query(f"SELECT DISTINCT {', '.join(FIVE)} FROM pairs WHERE version = 1") == [SIX[:5]]
    assert lake.query("SELECT DISTINCT text3, text4, similarity5 FROM pairs WHERE version = 2") == [
        (SIX[2], None, None)
    ]
    five, three = (datasets.find(lake, f"small@{version}") for version in (1, 2))
    assert differences(lake, five) == differences(lake, three) == {}
    assert [(each.cause, each.n) for each in version_diff.differences(lake, five, three, 0)] == [
        ("text4, text5, similarity4, similarity5", N)
    ]
    at = ("--lake", str(place))
    image_id = text_id("image", "1")
    assert re.search(f"text5.*{re.escape(SIX[4])}", tell("why", image_id, "--dataset", "small@1", *at))
    assert f"as text5 of {image_id}" in tell("why", text_id(SIX[4]), "--dataset", "small@1", *at)
    assert f"as text5 of {image_id}" not in tell("why", text_id(SIX[4]), "--dataset", "small@2", *at)
    report = place / "five.html"
    tell("report", "small@1", "--to", str(report), *at)
    assert SIX[4] in report.read_text() and "similarity5" in report.read_text()


@pytest.mark.slow
def test_exports_have_five_texts_or_the_released_three(place: Path, lake: Lake, tmp_path: Path):
    for version, columns in ((1, ["raw_image_url", *FIVE, "syn_text"]), (2, [*REALSYN])):
        out = tmp_path / f"realsyn{version}"
        export(lake, "small", version, str(out), "realsyn")
        (file,) = out.glob("*.parquet")
        assert pq.read_table(file).column_names == columns
        assert sorted(released_texts(str(file), 100)) == sorted(SIX[: len(columns) - 2])  # what `conform` reads
        described = json.loads((out / ".croissant.json").read_text())["recordSet"][0]["field"]
        assert [field["name"] for field in described] == columns
        assert ("`text5`" in (out / "README.md").read_text()) == (version == 1)

        export(lake, "small", version, str(tmp_path / f"tars{version}"), text="each(text1..text3)")
        (held,) = {frozenset(json.loads(each["json"])) for each in samples(tmp_path / f"tars{version}")}
        assert {"text4", "text5", "similarity4", "similarity5"} & held == (
            {"text4", "text5", "similarity4", "similarity5"} if version == 1 else set()
        )
    with open_lake(str(place)) as opened:
        assert "similarity5" in opened.dataset("small@1").columns and "text4" not in opened.dataset("small@2").columns

    export(lake, "small", 1, str(tmp_path / "drawn"), text="random(text4..text5)")
    assert {each["txt"].decode() for each in samples(tmp_path / "drawn")} == set(SIX[3:5])
    with pytest.raises(PairmillError, match=r"there is no text 'text5' \(a version has it by `association.top_k: 5`"):
        export(lake, "small", 2, str(tmp_path / "none"), text="random(text1..text5)")
    with pytest.raises(PairmillError, match=r"pairs have no text 'text4'"), open_lake(str(place)) as opened:
        opened.dataset("small@2").torch(text="text4")


@pytest.mark.slow
def test_a_takedown_moves_the_later_texts_up_and_the_version_still_verifies(lake: Lake, tmp_path: Path):
    lake.execute("UPDATE sentences SET document_id = 'gone' WHERE text = ?", (SIX[2],))
    lake.execute("INSERT INTO documents (document_id, source, uri, shard) VALUES ('gone', 's', 'u', 'shard-0')")
    done = take_down(lake, Subject(documents=("gone",)), "test", tmp_path / "reports")
    assert [(each["dataset"], each["pairs_changed"]) for each in done["versions"]] == [("small@1", N), ("small@2", N)]
    left = [text for text in SIX[:5] if text != SIX[2]]
    texts = f"SELECT DISTINCT {', '.join(FIVE)}, similarity4, similarity5 FROM pairs WHERE version = "
    assert lake.query(texts + "1") == [(*left, None, 0.1, None)]
    assert lake.query(texts + "2") == [(*left[:2], None, None, None, None, None)]
    assert all(is_as_published(lake, datasets.find(lake, f"small@{version}")) for version in (1, 2))
