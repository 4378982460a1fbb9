"""`pairmill run` and what the reading commands say afterwards, over a small curated lake."""

import json
import os
import shutil
from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.run.settings import load_recipe
from pairmill.flows.run.survey import Survey, survey
from pairmill.tasks.release.export.export import export
from pairmill.tasks.run.place import identity
from tests.worlds.commands import Tell, run_unread
from tests.worlds.line import curate, rows, work_done
from tests.worlds.shared import copied, new_lake


@pytest.fixture(scope="module")
def assignments(settings: dict[str, str]) -> list[str]:
    return [f"--set={key}={value}" for key, value in settings.items()]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, curated: Path) -> str:
    return str(copied(curated, tmp_path_factory.mktemp("run") / "lake"))


def surveyed(lake: str, settings: dict[str, str], *sources: Path) -> Survey:
    plan, _ = identity.with_scorers(compile_plan(load_recipe("demo", settings)))
    with create_or_open(lake, read_only=True) as opened:
        return survey(opened, plan, [str(source) for source in sources])


def test_a_run_tells_funnel_pairs_report_and_where_to_go_on(tell: Tell, lake: str, pages: Path, assignments: list[str]):
    told = tell("run", "demo", "--source", str(pages), "--lake", lake, *assignments)
    assert "demo@1" in told and "unchanged" in told
    for part in ("images", "sentences", "short_side", "duplicate", "recall of the retrieval"):
        assert part in told
    assert told.count("  text1 ") == 3
    report = Path(next(line for line in told.splitlines() if line.startswith("report")).split()[1])
    assert report.is_file() and report.parent.parent == Path(lake)
    sql = next(line for line in told.splitlines() if line.startswith("go on")).split('"')[1]
    assert len(json.loads(tell("sql", sql, "--lake", lake, "--format", "json"))) == 10


@pytest.mark.slow
def test_the_same_pages_elsewhere_copied_or_referred_to_publish_the_same_dataset(
    tell: Tell, curated: Path, pages: Path, settings: dict[str, str], tmp_path: Path
):
    """Two lakes of one source, since an export bears the ids of images, which are made of their places.

    One has copies of all pictures; the other has only the embedded ones, and its export reads the rest from the source.
    """
    source = shutil.copytree(pages, tmp_path / "else/where/pages")
    lake, referring = str(tmp_path / "copies"), str(tmp_path / "references")
    for place, payload in ((lake, "copy"), (referring, "reference")):
        curate(place, source, settings=settings | {"ingest.payload": payload})
    digest = "SELECT content_digest, n_pairs, version FROM datasets"
    ((content, n_pairs, _),) = here = rows(curated, digest)
    assert n_pairs and rows(referring, digest) == rows(lake, digest) == here
    addresses = [row[0] for row in rows(curated, "SELECT raw_image_url FROM pairs")]
    assert not any(address.startswith(("/", "data:")) for address in addresses)
    ((kept, total),) = rows(referring, "SELECT count(bytes), count(*) FROM payloads")
    assert 0 < kept < total / 4
    tars = {}
    for name in (lake, referring):
        tell("export", "demo@1", "--to", str(tmp_path / f"tars-{len(tars)}"), "--lake", name)
        tars[name] = {path.name: path.read_bytes() for path in (tmp_path / f"tars-{len(tars)}").glob("*.tar")}
    assert tars[lake] == tars[referring] != {}
    # One that lies in a single place: any other would be read from where else it was seen.
    places = (
        "SELECT min(p.uri) FROM payloads p JOIN images i USING (sha256) JOIN pairs USING (image_id) GROUP BY sha256"
    )
    (uri,) = rows(referring, f"{places} HAVING count(DISTINCT p.uri) = 1 AND count(p.bytes) = 0 ORDER BY ALL")[0]
    away = Path(uri).rename(tmp_path / "away")
    gone = pytest.raises(PairmillError, match=r"no longer at '.*Put them back, then run the same again")
    with create_or_open(referring) as opened, gone:
        export(opened, "demo", 1, str(tmp_path / "again"))
    away.rename(uri)
    # A page that was touched enters once more and changes nothing.
    os.utime(sorted(source.rglob("*.html"))[0], (1, 1))
    again, counts = curate(lake, source, settings=settings | {"ingest.payload": "copy"})
    assert (counts["ingest"], again.version, again.content_digest) == (1, 1, content)


def test_after_a_run_nothing_is_pending(tell: Tell, lake: str, pages: Path, assignments: list[str]):
    told = tell("run", "demo", "--source", str(pages), "--lake", lake, *assignments, "--dry-run")
    assert "nothing is pending" in told
    told = tell("status", "--lake", lake)
    assert "lease    free" in told and "completed in" in told


@pytest.mark.slow
def test_an_unreachable_source_is_a_note_of_a_survey(lake: str, settings: dict[str, str]):
    seen = surveyed(lake, settings, Path("/nowhere/pages"))
    assert "source '/nowhere/pages'" in seen.notes[0] and any(each.work == "score images" for each in seen.found)


def test_an_empty_lake_has_everything_before_it(tmp_path: Path, pages: Path, settings: dict[str, str]):
    found = surveyed(str(new_lake(tmp_path / "lake")), settings, pages).found
    ingest = found[0]
    assert (ingest.work, ingest.items, ingest.due) == ("ingest", 9, "")
    assert ingest.rows >= 18
    after = {each.work: each for each in found[1:]}
    assert all(each.rows == 0 or each.work.startswith("train") for each in after.values())
    assert after["score images"].due == "plus rows from earlier steps"
    for work in ("group duplicates", "caption main", "tag", "fuse"):
        assert after[work].due == "all rows that reach it"


@pytest.mark.slow
def test_a_changed_prompt_is_foretold_as_it_is_then_run(curated_copy: Path, pages: Path, settings: dict[str, str]):
    changed = settings | {"captioners.0.prompt": "tell me more of the picture"}
    foretold = {each.work: each.items for each in surveyed(str(curated_copy), changed, pages).found if each.items}
    _, counts = curate(curated_copy, pages, settings=changed)
    # The captions of a random model are cut off, so that texts are fused of what they were fused of before.
    generated = ("caption main", "fuse", "fuse, told before")
    asked = {work: n for work, n in work_done(counts).items() if work in generated}
    assert foretold == asked | {"next wave": 1}


@pytest.mark.slow
def test_new_documents_are_foretold(lake: str, pages: Path, more_pages: Path, settings: dict[str, str]):
    found = surveyed(lake, settings, pages, more_pages).found
    assert [(each.work, each.items) for each in found if each.items] == [("ingest", 2)]
    assert {each.due for each in found[2:]} == {"plus rows from earlier steps"}


@pytest.mark.slow
def test_a_survey_changes_nothing(lake: str, pages: Path, more_pages: Path, settings: dict[str, str]):
    files = {file: file.stat().st_mtime_ns for file in Path(lake).rglob("*.parquet")}
    surveyed(lake, settings | {"association.clusters": "5", "balance.clusters": "4"}, pages, more_pages)
    assert files == {file: file.stat().st_mtime_ns for file in Path(lake).rglob("*.parquet")}


def test_why_finds_a_sentence_by_its_text_however_it_is_written(tell: Tell, lake: str):
    with create_or_open(lake, read_only=True) as opened:
        text = opened.query("SELECT text FROM sentence_content ORDER BY length(text), text LIMIT 1")[0][0]
    assert text in tell("why", f"  {text.upper()} ", "--lake", lake)


def test_why_tells_the_keeper_of_a_duplicate(tell: Tell, lake: str):
    with create_or_open(lake, read_only=True) as opened:
        loser, keeper = opened.query(
            "SELECT item_id, value FROM decisions WHERE dropped_by = 'duplicate' ORDER BY item_id LIMIT 1"
        )[0]
    told = tell("why", loser, "--lake", lake)
    assert f"dropped by duplicate ({keeper})" in told
    assert any(line.split()[0] == keeper and "kept" in line for line in told.splitlines() if line.strip())


def test_export_writes_the_newest_version_and_says_where(tell: Tell, lake: str, tmp_path: Path):
    told = tell("export", "demo", "--to", str(tmp_path / "out"), "--lake", lake)
    assert "pairs in 1 files" in told
    assert list((tmp_path / "out").glob("demo-v*.tar"))


def test_the_demo_models_stand_in_for_the_big_ones(capsys, tmp_path: Path, pages: Path):
    """`--models demo` leaves the recipe as it is but for its models; the sources of 30m are the user's."""
    demo, big = load_recipe("demo"), load_recipe("30m", None, "demo")
    assert set(big.models.values()) == set(demo.models.values())
    whole = load_recipe("30m")
    assert big.images == [rule for rule in whole.images if rule.name != "pair_similarity"]
    assert big.balance == whole.balance


@pytest.mark.slow
def test_a_run_whose_reader_has_gone_goes_on_to_its_end(tmp_path: Path, curated_copy: Path, pages: Path, assignments):
    """As `pairmill run … | head`: it has something to publish, and says so to nobody."""
    changed = [*assignments, "--set=images.short_side.keep=least(width, height) >= 100"]
    done = run_unread(["run", "demo", "--source", str(pages), "--lake", str(curated_copy), *changed])
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(curated_copy, "SELECT state FROM runs ORDER BY started_at DESC LIMIT 1") == [("completed",)]
    assert rows(curated_copy, "SELECT max(version) FROM datasets") == [(2,)]
