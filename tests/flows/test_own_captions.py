"""Captions that came along with pictures: kept, filled up, compared; and a trainer's folder is a source."""

import json
from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.parts_of_texts import OWN
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.terms.error import BadRecipe
from pairmill.flows.run.settings import load_recipe
from pairmill.tasks.release.export.export import export
from tests.worlds.generated import PICTURES_ALONE
from tests.worlds.line import curate, rows
from tests.worlds.published import picture

CAPTIONS = {"models.captioner": "hf:infra/demo/models/captioner", "captioners.main.max_tokens": "32",
            "captioners.main.side": "96", "captioners.main.precision": "fp32"}  # fmt: skip
KEEP = {"captions.own": "keep", "captioners": "[]"}
SAID = "SELECT raw_image_url, caption, captioner FROM pairs WHERE version = (SELECT max(version) FROM datasets)"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    for n, name in enumerate(("a", "b", "sub/c")):
        (folder / f"{name}.jpg").write_bytes(picture(3 * n + 3))
    (folder / "a.txt").write_text("One caption.\nAnother line.")
    (folder / "sub/c.json").write_text(json.dumps({"caption": "Caption of a sidecar."}))
    return folder


def said(lake: Path) -> dict[str, tuple[str, str]]:
    return {url: (caption, by) for url, caption, by in rows(lake, SAID)}


@pytest.mark.slow
def test_own_captions_are_kept_follow_their_files_and_are_filled_up(photos: Path, tmp_path: Path):
    lake = tmp_path / "lake"
    curate(lake, photos, recipe="captions", settings=KEEP)
    assert said(lake) == {"a.jpg": ("One caption.", OWN), "sub/c.jpg": ("Caption of a sidecar.", OWN)}
    assert rows(lake, "SELECT count(*) FROM sentences") == [(0,)]
    (photos / "a.txt").write_text("A corrected caption.")
    (photos / "sub/c.json").unlink()
    curate(lake, photos, recipe="captions", settings=KEEP)
    assert said(lake) == {"a.jpg": ("A corrected caption.", OWN)}
    (photos / "a.txt").write_text("Corrected again.")
    (photos / "sub/c.txt").write_text("It is back.")
    curate(lake, photos, recipe="captions", settings=KEEP)
    assert said(lake) == {"a.jpg": ("Corrected again.", OWN), "sub/c.jpg": ("It is back.", OWN)}
    (photos / "sub/c.txt").unlink()
    curate(lake, photos, recipe="captions", settings=KEEP)
    assert said(lake) == {"a.jpg": ("Corrected again.", OWN)}
    _, work = curate(lake, photos, recipe="captions", settings=KEEP)
    assert not any(work.values())
    fill = CAPTIONS | {"captions.own": "fill"}
    curate(lake, photos, recipe="captions", settings=fill)
    assert {url: by for url, (_, by) in said(lake).items()} == {"a.jpg": OWN, "b.jpg": "main", "sub/c.jpg": "main"}
    assert rows(lake, "SELECT count(*) FROM captions WHERE captioner = 'main'") == [(2,)]
    _, work = curate(lake, photos, recipe="captions", settings=fill)
    assert not any(work.values())


@pytest.mark.slow
def test_an_exported_folder_is_a_source_whose_captions_are_captions(photos: Path, tmp_path: Path):
    curate(tmp_path / "first", photos, recipe="captions", settings=KEEP)
    with create_or_open(tmp_path / "first") as lake:
        export(lake, "captions", None, str(tmp_path / "out"), "folder", text="caption")
    curate(tmp_path / "second", tmp_path / "out", recipe="captions", settings=KEEP)
    assert said(tmp_path / "second") == said(tmp_path / "first")
    assert rows(tmp_path / "second", "SELECT count(*) FROM images") == [(2,)]


@pytest.mark.slow
def test_without_the_setting_own_captions_are_sentences_as_before(photos: Path, tmp_path: Path):
    curate(tmp_path / "lake", photos, settings=PICTURES_ALONE | {"captioners": "[]", "models": "{}"})
    found = {text for (text,) in rows(tmp_path / "lake", "SELECT text FROM sentences")}
    assert found == {"One caption.", "Another line.", "Caption of a sidecar."}


@pytest.mark.slow
def test_the_better_of_own_and_made_captions_is_chosen(photos: Path, tmp_path: Path):
    asked = PICTURES_ALONE | {"captions.own": "compare"}
    curate(tmp_path / "lake", photos, settings=asked)
    compared = (
        "SELECT c.sha256, captioner, caption_similarity FROM captions c "
        "JOIN caption_similarity s ON s.sha256 = c.sha256 AND s.input_digest = left(sha256(c.text), 32) "
        "WHERE c.status = 'ok'"
    )
    best: dict[str, tuple[float, str]] = {}
    for sha256, by, similarity in rows(tmp_path / "lake", compared):
        best[sha256] = max(best.get(sha256, (-2.0, "")), (similarity, by))
    pairs = rows(tmp_path / "lake", "SELECT sha256, caption_similarity, captioner FROM pairs")
    assert {sha256: (similarity, by) for sha256, similarity, by in pairs} == best and len(best) == 2


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"captions.own": "keep"}, r"asks no captioner; write `captioners: \[\]`"),
        ({"captions.own": "fill", "captioners": "[]"}, "needs one captioner, and `captioners` has 0"),
        ({"captions.own": "compare", "captioners": "[]"}, "needs a captioner"),
        ({"captions.own": "fill", "captions.choose": "best"}, "leave `choose` out, or `own`"),
        ({"captions.own": "fill", "captioners.main.name": "own"}, "two have the name 'own'"),
        ({"captions.own": "compare"}, "'caption_similarity' needs `models.clip`, .* or write caption_itm_score"),
        ({"captions.own": "add"}, "keep"),
    ],
)
def test_a_choice_that_cannot_be_made_is_told_with_the_remedy(settings: dict[str, str], why: str):
    with pytest.raises(BadRecipe, match=why):
        compile_plan(load_recipe("captions", settings))
