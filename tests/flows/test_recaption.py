"""The recipe captions: every picture once, whatever killed the run; the first ones looked at; what goes out grows."""

import io
import json
import subprocess
import sys
import tarfile
from contextlib import redirect_stdout
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.captioned import Spent
from pairmill.catalog.terms.error import BadRecipe
from pairmill.flows.command.cli import main
from pairmill.flows.run.caption_rate import duration, format_rate
from pairmill.flows.run.settings import TAKEN, captions_recipe, load_recipe
from pairmill.tasks.generate import caption
from pairmill.tasks.run.session import Session
from tests.worlds.commands import Tell
from tests.worlds.data_bucket import bucket  # noqa: F401
from tests.worlds.line import curate, rows, scored_twice, work_done
from tests.worlds.photos import add_pictures
from tests.worlds.recaption_line import FIRST, TAR_ROWS
from tests.worlds.shared import copied, made_once

N = 40
DEMO = ("demo", "--models", "demo", "--workers", "2")
SAID = "SELECT sha256, text, status FROM captions ORDER BY sha256"


def make_photos(folder: Path) -> None:
    """N pictures, a copy of the first, one whose pixels are cut off, and one that is none."""
    add_pictures(folder, 0, N)
    (folder / "copy.jpg").write_bytes((folder / "0000.jpg").read_bytes())
    whole = (folder / "0001.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2] + b"cut")
    (folder / "none.jpg").write_bytes(b"no picture")


def captioned_once() -> Path:
    """Return a folder with a ``lake`` in which all photos have captions, and what the run ``told``; to read only."""

    def make(place: Path) -> None:
        photos = made_once("photos", make_photos)
        place.mkdir()
        with (place / "told").open("w") as told, redirect_stdout(told):
            assert main(["recaption", *DEMO, "--source", str(photos), "--lake", str(place / "lake")]) == 0

    return made_once("captioned-lake", make)


@pytest.fixture(scope="module")
def photos() -> Path:
    return made_once("photos", make_photos)


@pytest.fixture
def captioned(tmp_path: Path) -> Path:
    """A lake of its own in which all pictures have captions."""
    return copied(captioned_once() / "lake", tmp_path / "lake")


@pytest.fixture
def few_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caption, "FIRST", FIRST)


def samples(folder: Path) -> dict[str, dict[str, bytes]]:
    """The files of each sample by the picture's sha256."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                key, extension = member.name.split(".", 1)
                found.setdefault(key, {})[extension] = tar.extractfile(member).read()  # pyright: ignore
    return {json.loads(sample["json"])["sha256"]: sample for sample in found.values()}


@pytest.mark.slow
def test_captions_of_pictures_shown_otherwise_do_not_count_and_status_and_the_run_say_so(
    captioned: Path, capsys: pytest.CaptureFixture[str]
):
    other = ("--set", "captioners.main.processor={tiles: 1}")
    (n,) = rows(captioned, "SELECT count(*) FROM captions")[0]
    told = f"captioner 'main': {n} pictures have captions of this model by other picture settings, which do not count"
    assert main(["recaption", *DEMO, *other, "--lake", str(captioned)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert told in said and "--set 'captioners.main.processor={}'" in said
    assert rows(captioned, "SELECT count(*), count(DISTINCT scorer) FROM captions") == [(2 * n, 2)]
    assert main(["recaption", *DEMO, "--lake", str(captioned)]) == 0
    assert rows(captioned, "SELECT count(*) FROM captions") == [(2 * n,)]


@pytest.mark.slow
def test_every_distinct_picture_is_captioned_shown_and_handed_out(
    captioned: Path, photos: Path, tmp_path: Path, tell: Tell
):
    lake, out = captioned, tmp_path / "out"
    told = (captioned_once() / "told").read_text()
    tell("recaption", *DEMO, "--lake", str(lake), "--to", str(out))
    assert "captions in" in told and "tokens/s" in told and "model busy" in told
    made = {sha: (text, status) for sha, text, status in rows(lake, SAID)}
    assert len(made) == N + 1 and scored_twice(lake) == []
    good = {sha: text for sha, (text, status) in made.items() if status == "ok"}
    left = [status for _, status in made.values() if status != "ok"]
    assert "empty" in left and len(good) > N / 2
    read = samples(out)
    assert {sha: sample["txt"].decode() for sha, sample in read.items()} == good
    originals = {path.read_bytes() for path in photos.iterdir()}
    for sha, sample in read.items():
        about = json.loads(sample["json"])
        assert set(sample) == {"jpg", "txt", "json"} and sample["jpg"] in originals
        assert (about["caption"], about["caption_status"], about["text1"]) == (good[sha], "ok", None)
    assert rows(lake, "SELECT count(*) FROM images")[0][0] == N + 2, "a copy is one picture"
    assert json.loads((out / ".manifest.json").read_text())["rows"] == len(good)
    dropped = "SELECT item_id, value FROM decisions WHERE dropped_by = 'whole_caption'"
    assert len(rows(lake, dropped)) == len(left)
    for status in set(left):
        assert f"{left.count(status)} {status}" in told
    strip = next(line for line in told.splitlines() if line.startswith("strip")).split()[1]
    page = Path(strip).read_text()
    assert page.count("<article ") == N + 1 and page.count("data:image/webp") >= N
    assert told.startswith("demo: this run uses the small models that ship (captioner).") and "jpg  demo " in told
    assert "by the demo's weights" in told and page.count('<b class="fault">demo</b>') == N + 1
    assert rows(lake, "SELECT stage, item FROM quarantine WHERE stage = 'caption'")
    scored = "SELECT DISTINCT \"table\" FROM partitions WHERE scorer <> '' ORDER BY 1"
    assert rows(lake, scored) == [("captions",)], "nothing but captions is paid for"


@pytest.mark.parametrize("models", ["recipe", "demo"])
def test_the_recipe_by_its_own_name_has_the_digest_of_the_command(models: str):
    recipe = load_recipe("captions", {}, models)
    assert captions_recipe(recipe).digest() == recipe.digest()


def test_settings_of_the_recipe_count_and_those_that_cannot_are_refused():
    own = load_recipe("captions", {"captions.own": "fill"})
    assert captions_recipe(own, ["captions.own"]).captions.own == "fill"
    with pytest.raises(
        BadRecipe, match=r"--set balance.cap: .* only the first captioner of '30m'.* `pairmill run 30m`"
    ):
        captions_recipe(load_recipe("30m"), ["captioners.main.prompt", "balance.cap"])


@pytest.mark.slow
def test_the_recipe_makes_the_same_captions_by_its_own_name(captioned: Path, photos: Path, tmp_path: Path, tell: Tell):
    said = tell("run", "captions", "--models", "demo", "--source", str(photos), "--lake", str(tmp_path / "other"))
    assert "captions@1" in said and "caption main" in said
    # Captioner `main` of the demo shows a picture whole, too: `processor` has no effect on the small model.
    assert rows(tmp_path / "other", SAID) == rows(captioned, SAID)


@pytest.mark.slow
def test_a_folder_without_any_text_curates_by_a_recipe_that_retrieves_none(photos: Path, tmp_path: Path, tell: Tell):
    settings = {"association": "none", "duplicates": "none", "fuse": "null", "tags": "null", "balance.cap": "none"}
    settings |= {"images.pair_similarity.keep": "true", "images.whole_text.keep": "true"}
    command = ["run", *DEMO, "--source", str(photos), "--lake", str(tmp_path / "lake")]
    told = tell(*command, *(f"--set={key}={value}" for key, value in settings.items()))
    steps = rows(tmp_path / "lake", "SELECT rule, n_dropped FROM funnel WHERE kind = 'image' ORDER BY position")
    assert "no_text" not in dict(steps) and dict(steps)["readable"] == 1
    ((n,),) = rows(
        tmp_path / "lake", "SELECT count(*) FROM pairs WHERE text1 IS NULL AND caption_similarity IS NOT NULL"
    )
    assert n > N / 2 and f"demo@1  {n} pairs" in told


def killed(lake: Path, photos: Path, done: int, in_first: bool = True) -> None:
    command = [sys.executable, "-m", "tests.worlds.recaption_line", str(lake), str(photos), str(done), str(in_first)]
    gone = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert gone.returncode == -9, gone.stderr[-2000:]


@pytest.mark.slow
def test_what_was_committed_before_a_kill_is_not_made_again_and_nothing_is_missing(photos: Path, tmp_path: Path):
    lake = tmp_path / "lake"
    killed(lake, photos, 1)
    once = rows(lake, f'{SAID[: SAID.index(" FROM")]}, "commit" FROM captions ORDER BY sha256')
    assert 0 < len(once) < FIRST
    killed(lake, photos, 2, False)
    twice = rows(lake, f'{SAID[: SAID.index(" FROM")]}, "commit" FROM captions ORDER BY sha256')
    assert FIRST < len(twice) < N and set(once) < set(twice)
    assert main(["recaption", *DEMO, "--source", str(photos), "--lake", str(lake)]) == 0
    done = rows(lake, f'{SAID[: SAID.index(" FROM")]}, "commit" FROM captions ORDER BY sha256')
    assert set(twice) < set(done)
    assert [row[0] for row in done] == [sha for (sha,) in rows(lake, "SELECT sha256 FROM image_content ORDER BY 1")]
    assert scored_twice(lake) == []


@pytest.mark.slow
def test_the_rest_is_made_only_when_a_person_says_so(
    photos: Path, tmp_path: Path, few_first: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    lake = tmp_path / "lake"
    command = ["recaption", *DEMO, "--source", str(photos), "--lake", str(lake), "--approve-first"]
    for answer in ("n\n", ""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        assert main(command) == 1
        out, err = capsys.readouterr()
        assert f"caption the other {N + 1 - FIRST}? [y/n]" in out and "were not approved" in err
        assert len(rows(lake, SAID)) == FIRST
    before = rows(lake, SAID)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(command) == 0
    assert len(rows(lake, SAID)) == N + 1 and set(before) < set(rows(lake, SAID))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main(command) == 0, "nothing is left to ask about"


@pytest.mark.slow
def test_captions_of_a_curate_are_used_and_a_curate_uses_these(
    curated_copy: Path, pages: Path, settings: dict[str, str], tell: Tell
):
    before = rows(curated_copy, SAID)
    taken = (*TAKEN, "models", "captioners")
    changed = [f"--set={key}={value}" for key, value in settings.items() if key.partition(".")[0] in taken]
    # No caption of these weights ends by itself, so none is kept.
    tell("recaption", "demo", "--lake", str(curated_copy), "--workers", "2", "--allow-empty", *changed)
    after = rows(curated_copy, SAID)
    assert set(before) < set(after) and scored_twice(curated_copy) == []
    assert len(after) == rows(curated_copy, "SELECT count(*) FROM image_content")[0][0]
    loose = settings | {"images.short_side.keep": "true"}
    _, counts = curate(curated_copy, pages, settings=loose)
    assert "score captions" in work_done(counts) and "caption main" not in work_done(counts)


@pytest.mark.slow
def test_what_a_later_run_adds_goes_into_further_files_and_what_has_gone_leaves_them(
    captioned: Path, tmp_path: Path, tell: Tell
):
    more, out = tmp_path / "more", tmp_path / "out"
    command = ["recaption", *DEMO, "--lake", str(captioned), "--to", str(out)]
    tell(*command)
    first = {path.name: path.read_bytes() for path in out.glob("*.tar")}
    stamp = (out / "captions-000000.tar").stat().st_mtime_ns
    add_pictures(more, N, N + 3)
    tell(*command, "--source", str(more))
    assert sorted(path.name for path in out.glob("*.tar")) == ["captions-000000.tar", "captions-000001.tar"]
    assert (out / "captions-000000.tar").read_bytes() == first["captions-000000.tar"]
    assert (out / "captions-000000.tar").stat().st_mtime_ns == stamp
    manifest = json.loads((out / ".manifest.json").read_text())
    ok = [sha for sha, _, status in rows(captioned, SAID) if status == "ok"]
    assert sorted(samples(out)) == ok and manifest["rows"] == len(ok) == sum(f["rows"] for f in manifest["files"])
    # A caption that has gone leaves the files too.
    with create_or_open(captioned) as lake:
        lake.execute("UPDATE captions SET status = 'repeating' WHERE sha256 = ?", (ok[0],))
    assert "1 repeating" in tell(*command)
    assert sorted(samples(out)) == ok[1:]


@pytest.mark.slow
def test_a_file_of_which_a_row_has_changed_is_made_anew_and_no_other(
    captioned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Tell
):
    monkeypatch.setattr("pairmill.tasks.release.export.export.TAR_ROWS", TAR_ROWS)
    out, whole = tmp_path / "out", tmp_path / "whole"
    command = ["recaption", *DEMO, "--lake", str(captioned), "--to"]
    tell(*command, str(out))
    stamps = {path.name: path.stat().st_mtime_ns for path in out.glob("*.tar")}
    reword_one(captioned)
    tell(*command, str(out))
    made = [name for name, stamp in stamps.items() if (out / name).stat().st_mtime_ns != stamp]
    assert len(made) == 1 < len(stamps)
    tell(*command, str(whole))
    for path in whole.iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes(), path.name


def reword_one(lake: Path) -> None:
    """Give one caption another text, which the next version has."""
    with create_or_open(lake) as opened:
        ((sha,),) = opened.query("SELECT min(sha256) FROM captions WHERE status = 'ok'")
        opened.execute("UPDATE captions SET text = 'Another text.' WHERE sha256 = ?", (sha,))


@pytest.mark.slow
def test_what_could_not_be_read_is_said_and_captioned_when_it_is_tried_again(
    tmp_path: Path, tell: Tell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    photos, away = tmp_path / "photos", tmp_path / "away.jpg"
    add_pictures(photos, 0, 4)
    command = ["recaption", *DEMO, "--lake", str(tmp_path / "lake"), "--set", "ingest.payload=reference"]

    def take_away(_: Session) -> None:
        (photos / "0002.jpg").rename(away)

    with monkeypatch.context() as between:
        between.setattr("pairmill.flows.curate.score_images", take_away)
        said = tell(*command, "--source", str(photos))
    assert "3 ok, 1 empty" in said and "in quarantine: 1 missing; pairmill quarantine" in said
    away.rename(photos / "0002.jpg")
    assert "1 empty" in tell(*command), "what failed is not tried again by itself"
    said = tell(*command, "--retry", "missing")
    assert "4 ok" in said and "empty" not in said and "in quarantine:" not in said
    assert main([*command, "--retry", "sadness"]) == 1
    assert "'sadness' is not a quarantine reason" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["recaption", *DEMO],
        ["run", "demo", "--models", "demo", "--retry", "missing"],
        ["export", "demo", "--to", "out"],
    ],
)
def test_a_folder_of_pictures_is_made_no_lake(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    add_pictures(tmp_path / "photos", 0, 2)
    assert main([*command, "--lake", str(tmp_path / "photos")]) == 1
    assert "there is no lake at" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "photos").iterdir()) == ["0000.jpg", "0001.jpg"]


@pytest.mark.slow
def test_texts_are_a_row_a_caption_without_pictures_in_another_folder(
    captioned: Path, tmp_path: Path, tell: Tell, capsys: pytest.CaptureFixture[str]
):
    command = ["recaption", *DEMO, "--lake", str(captioned), "--to", str(tmp_path / "out")]
    tell(*command, "--format", "texts")
    table = pq.read_table(tmp_path / "out" / "captions-000000.parquet")
    made = {sha: text for sha, text, status in rows(captioned, SAID) if status == "ok"}
    assert dict(zip(table["sha256"].to_pylist(), table["caption"].to_pylist(), strict=True)) == made
    assert None not in table["raw_image_url"].to_pylist() and "image" not in table.column_names
    assert main([*command, "--format", "webdataset"]) == 1
    assert "holds the export of captions as texts" in capsys.readouterr().err


def test_figures_are_those_of_the_committed_captions_over_the_time_they_took():
    text, share = format_rate(Spent(10, 100, 5.0), Spent(60, 1100, 50.0), pending=200, wall=100.0)
    assert text == "50 of 200 pictures, 10 tokens/s, 2 s a picture, model busy 45 %, 5 min left" and share == 0.25
    assert [duration(n) for n in (40, 3600, 7260, 187_200)] == ["40 s", "60 min", "2 h 1 min", "2 d 4 h"]


@pytest.mark.slow
def test_s3_gets_the_same_tars(captioned: Path, tmp_path: Path, bucket, tell: Tell):  # noqa: F811
    command = ["recaption", *DEMO, "--lake", str(captioned), "--to"]
    tell(*command, str(tmp_path / "out"))
    assert "s3://data/captions: " in tell(*command, "s3://data/captions")
    local = tmp_path / "out" / "captions-000000.tar"
    assert bucket.get_object(Bucket="data", Key="captions/captions-000000.tar")["Body"].read() == local.read_bytes()
    told = rows(captioned, "SELECT uri, format, rows > 0 FROM exports ORDER BY uri")
    assert told == [(str(tmp_path / "out"), "webdataset", True), ("s3://data/captions", "webdataset", True)]
