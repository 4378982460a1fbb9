"""Several captioners on the whole line: which one's text is the caption, and all of them beside each other."""

import json
import tarfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.queries.figures.report import generated, plan_of
from pairmill.flows.command.cli import main
from pairmill.flows.run.settings import load_recipe
from tests.reference.second_cut import agrees
from tests.worlds.browsed import browsed
from tests.worlds.commands import Tell
from tests.worlds.generated import PICTURES_ALONE
from tests.worlds.generator import drawn
from tests.worlds.line import curate, rows, stopped, work_done
from tests.worlds.shared import copied, made_once
from tests.worlds.tiny_matcher import tiny_blip

# The demo's captioner twice: shown a picture of 32 pixels, it is wrong about some.
ASKED = "model: captioner, prompt: 'Describe the picture.', max_tokens: 32, precision: fp32"
SETTINGS = PICTURES_ALONE | {
    "images": "[{name: short_side, keep: 'least(width, height) >= 64'}, "
    "{name: shown, keep: \"caption_status = 'ok' and caption_similarity >= 0\"}]",
    "captioners": f"[{{name: far, side: 32, {ASKED}}}, {{name: near, side: 96, {ASKED}}}]",
    "captions.choose": "best",
}
MIXTURE = SETTINGS | {"captions.choose": "mixture"}
SAID = (
    "SELECT DISTINCT c.sha256, captioner, text, status, caption_similarity FROM captions c JOIN caption_similarity s "
    "ON s.sha256 = c.sha256 AND s.input_digest = left(sha256(c.text), 32)"
)


@pytest.fixture(scope="session")
def best(pages: Path) -> Path:
    return made_once("lake-best-captions", lambda place: curate(place, pages, settings=SETTINGS))


def pairs(lake: Path) -> dict[str, tuple]:
    columns = "sha256, captioner, caption, caption_status, caption_similarity"
    newest = "version = (SELECT max(version) FROM datasets)"
    return {row[0]: row[1:] for row in rows(lake, f"SELECT {columns} FROM pairs WHERE {newest}")}


@pytest.mark.slow
def test_the_best_caption_is_the_one_that_fits_the_picture_best(best: Path):
    found, kept = rows(best, SAID), pairs(best)
    assert {row[1] for row in found} == {"near", "far"} == {by for by, *_ in kept.values()}
    for sha, (captioner, text, status, similarity) in kept.items():
        ok = [row for row in found if row[0] == sha and row[3] == "ok"]
        assert similarity == max(row[4] for row in ok) and status == "ok"
        assert (sha, captioner, text, status, similarity) in ok
        assert captioner == "far" or max((row[4] for row in ok if row[1] == "far"), default=-2) < similarity


@pytest.mark.slow
def test_a_gallery_shows_the_texts_of_both_beside_each_other(best: Path, tmp_path: Path):
    with browsed(copied(best, tmp_path / "lake")) as shown:
        card = shown.gallery("/gallery?dataset=demo&fate=kept").find_class("cell")[0]
    sha = card.xpath("string(.//input/@value)")
    said = {captioner: text for other, captioner, text, *_ in rows(best, SAID) if other == sha}
    texts = [each.text_content() for each in card.find_class("text")]
    assert [f"{name} · demo {said[name]}" for name in ("far", "near")] == texts[1:3]


@pytest.mark.slow
def test_a_second_run_asks_nobody_and_publishes_nothing(best: Path, pages: Path, tmp_path: Path):
    published, counts = curate(copied(best, tmp_path / "lake"), pages, settings=SETTINGS)
    assert not published.is_new and not counts.get("caption near", 0) + counts.get("caption far", 0)


@pytest.mark.slow
def test_another_choice_of_what_is_there_is_a_cut_and_no_captioner_is_asked(best: Path, pages: Path, tmp_path: Path):
    lake = copied(best, tmp_path / "lake")
    named = SETTINGS | {"captions.choose": "first"}
    published, counts = curate(lake, pages, settings=named)
    assert published.is_new and not counts.get("caption near", 0) + counts.get("caption far", 0)
    assert {by for by, *_ in pairs(lake).values()} == {"far"}


@pytest.mark.slow
def test_the_best_caption_may_be_the_one_that_a_matching_model_finds_best(
    best: Path, pages: Path, tmp_path: Path, tell: Tell
):
    lake = copied(best, tmp_path / "lake")
    asked = SETTINGS | {"models.itm": tiny_blip(tmp_path), "captions.by": "caption_itm_score"}
    _, counts = curate(lake, pages, settings=asked)
    assert {"match texts of captions", "match texts of captions near"} <= set(work_done(counts))
    assert not counts.get("caption near", 0) + counts.get("caption far", 0)
    scored = rows(
        lake,
        "SELECT DISTINCT c.sha256, c.text, s.caption_itm_score FROM captions c JOIN caption_itm s "
        "ON s.sha256 = c.sha256 AND s.input_digest = left(sha256(c.text), 32) WHERE status = 'ok'",
    )
    kept = pairs(lake)
    for sha, (_, text, *_) in kept.items():
        of_it = {said: score for key, said, score in scored if key == sha}
        assert of_it[text] == max(of_it.values())
    assert any(kept[sha][1] != row[1] for sha, row in pairs(best).items() if sha in kept), "CLIP chooses the same texts"
    published, counts = curate(lake, pages, settings=asked)
    assert (work_done(counts), published.is_new) == ({}, False)
    assert agrees(lake, "demo@2")
    sha, (_, text, *_) = next(iter(kept.items()))
    score = next(value for key, said, value in scored if (key, said) == (sha, text))
    assert f"caption_itm_score {score:.3f}, chosen" in " ".join(tell("why", sha, "--lake", str(lake)).split())


@pytest.mark.slow
def test_a_mixture_asks_one_captioner_a_picture_wherever_a_run_ends(pages: Path, tmp_path: Path):
    stopped(tmp_path / "stopped", pages, "caption near@1:0", MIXTURE)
    for lake in (tmp_path / "lake", tmp_path / "stopped"):
        curate(lake, pages, settings=MIXTURE)
        asked = rows(lake, "SELECT sha256, captioner FROM captions ORDER BY ALL")
        seed, names = load_recipe("demo", MIXTURE).seed, ["far", "near"]
        assert asked == [(sha, names[drawn(sha, seed, names)]) for sha in sorted({sha for sha, _ in asked})]
        assert {by for _, by in asked} == {"near", "far"} == {by for by, *_ in pairs(lake).values()}
    assert pairs(tmp_path / "stopped") == pairs(tmp_path / "lake")


@pytest.mark.slow
def test_a_captioner_that_joins_a_mixture_has_no_text_fused_anew_but_of_the_pictures_that_it_gets(
    pages: Path, tmp_path: Path
):
    asked = "SELECT sha256, arg_max(captioner, commit), arg_max(text, commit) FROM captions GROUP BY ALL"
    fused = 'SELECT sha256 FROM synthetic WHERE "commit" > ?'
    fusing = {key: value for key, value in MIXTURE.items() if key != "fuse"}
    curate(tmp_path / "lake", pages, settings=fusing)
    before = {sha: (by, text) for sha, by, text in rows(tmp_path / "lake", asked)}
    (last,) = rows(tmp_path / "lake", "SELECT max(commit) FROM synthetic")[0]
    three = fusing["captioners"].removesuffix("]") + f", {{name: mid, side: 64, {ASKED}}}]"
    curate(tmp_path / "lake", pages, settings=fusing | {"captioners": three})
    moved = {sha for sha, by, _ in rows(tmp_path / "lake", asked) if by == "mid"}
    anew = {sha for (sha,) in rows(tmp_path / "lake", fused.replace("?", str(last)))}
    assert anew <= moved and 0 < len(moved) < len(before)
    assert anew, "some of its texts are others"


def test_the_report_counts_captions_by_their_captioner(best: Path):
    with create_or_open(best, read_only=True) as lake:
        dataset = find(lake, "demo")
        counted = {row["kind"]: row["n"] for row in generated(lake, dataset, plan_of(lake, dataset))}
    assert counted == Counter(f"captions by {captioner}" for captioner, *_ in pairs(best).values())


@pytest.mark.slow
def test_an_export_has_every_captioners_text_where_it_is_asked_for(
    best: Path, tell: Tell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    lake = copied(best, tmp_path / "lake")
    said = {}
    for sha, captioner, text, status, similarity in sorted(rows(lake, SAID), key=lambda row: row[1]):
        shown = {"text": text if status == "ok" else None, "status": status, "similarity": similarity}
        said.setdefault(sha, []).append({"captioner": captioner, **shown})
    for form in ("parquet", "webdataset"):
        tell("export", "demo", "--to", str(tmp_path / form), "--format", form, "--captions", "all", "--lake", str(lake))
    table = pq.read_table(next((tmp_path / "parquet").glob("*.parquet"))).to_pylist()
    with tarfile.open(next((tmp_path / "webdataset").glob("*.tar"))) as tar:
        samples = [json.load(tar.extractfile(each)) for each in tar if each.name.endswith(".json")]  # pyright: ignore
    for exported in (table, samples):
        assert len(exported) == len(pairs(lake))
        assert all(row["captions"] == said[row["sha256"]] and len(row["captions"]) == 2 for row in exported)
    tell("export", "demo", "--to", str(tmp_path / "chosen"), "--format", "parquet", "--lake", str(lake))
    assert "captions" not in pq.read_table(next((tmp_path / "chosen").glob("*.parquet"))).column_names
    command = ["export", "demo", "--to", str(tmp_path / "parquet"), "--format", "parquet", "--lake", str(lake)]
    assert main(command) == 1
    assert "holds the export of demo@1 as parquet with all captions. Give another" in capsys.readouterr().err


def test_why_names_the_captioner_and_shows_what_the_others_said(best: Path, tell: Tell):
    kept = pairs(best)
    sha = next(sha for sha, (captioner, *_) in kept.items() if captioner == "near")
    told = tell("why", sha, "--dataset", "demo", "--lake", str(best)).splitlines()
    captions = [line for line in told if line.startswith("  caption ")]
    marks = {line.split(" by ")[1].split(",")[0]: line for line in captions}
    assert marks["near"].endswith(", chosen") and marks["far"].endswith(", not chosen")
    assert f"similarity {kept[sha][3]:.4f}" in marks["near"] and kept[sha][1] in marks["near"]
