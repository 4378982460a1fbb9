"""Recipe section `contamination`: a benchmark's pictures and their near copies do not enter a dataset."""

import io
import json
from pathlib import Path

import pytest
from lxml import html
from PIL import Image

import pairmill as pm
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.recipe.recipe import load
from pairmill.catalog.terms.error import BadRecipe
from pairmill.flows.pages.html_report import write_report
from pairmill.flows.run.settings import RECIPES
from pairmill.ops.image.benchmark_hash import content_of, pictures
from pairmill.tasks.measure.score_contents import score_images
from pairmill.tasks.relate.cluster import cluster_survivors
from pairmill.tasks.run.session import Session
from tests.reference.second_cut import agrees
from tests.worlds.commands import Tell
from tests.worlds.generated import small_settings
from tests.worlds.line import rows, run_part, texts

KEPT = "SELECT DISTINCT sha256 FROM images JOIN decisions ON item_id = image_id WHERE dropped_by = '' ORDER BY sha256"


def picture(lake: Path, sha256: str) -> Image.Image:
    """Return a picture of the lake, from the bytes that its payload holds or refers to."""
    data, uri = rows(lake, f"SELECT bytes, uri FROM payloads WHERE sha256 = '{sha256}'")[0]
    return Image.open(io.BytesIO(data or Path(uri).read_bytes())).convert("RGB")


def written(lake: Path) -> str:
    """Write the report of the newest version; return its path."""
    with create_or_open(lake, read_only=True) as opened:
        dataset = datasets.find(opened, "demo")
        return write_report(opened, dataset.name, dataset.version, str(lake / "page.html"))


def benchmark_of(lake: Path, folder: Path, shas: list[str]) -> None:
    """Write a benchmark: three of the lake's pictures, resized, recompressed and as they are, and one of noise."""
    folder.mkdir()
    small, worse, same = (picture(lake, sha256) for sha256 in shas)
    small.resize((small.width * 3 // 4, small.height * 3 // 4)).save(folder / "small.png")
    worse.save(folder / "worse.jpg", quality=40)
    same.save(folder / "same.png")
    Image.effect_noise((90, 70), 80).convert("RGB").save(folder / "noise.png")
    (folder / "labels.json").write_text("{}")


def compared(opened: Session) -> None:
    """Compare the pictures with the benchmark's, and publish what is left."""
    score_images(opened)
    cluster_survivors(opened)
    texts(opened)


@pytest.mark.slow
def test_near_copies_of_a_benchmark_are_dropped_and_named(curated_copy: Path, tmp_path: Path, tell: Tell):
    shas = [sha256 for (sha256,) in rows(curated_copy, KEPT)]
    benchmark_of(curated_copy, tmp_path / "test-set", shas[:3])
    section = {"sets": [str(tmp_path / "test-set")], "phash": 4, "cosine": 1.0}
    settings = small_settings() | {"contamination": json.dumps(section)}
    run_part(curated_copy, compared, settings)
    found = rows(
        curated_copy,
        "SELECT DISTINCT sha256, benchmark_copy FROM images JOIN decisions ON item_id = image_id "
        "JOIN benchmark_hash USING (sha256) WHERE dropped_by = 'contamination'",
    )
    named = {sha256: Path(file).name for sha256, file in found}
    assert named.items() >= dict(zip(shas[:3], ("small.png", "worse.jpg", "same.png"), strict=True)).items()
    near = rows(curated_copy, "SELECT sha256 FROM benchmark_hash WHERE benchmark_bits <= 4 OR sha256 IN "
                              "(SELECT sha256 FROM benchmark_vector WHERE benchmark_cosine >= 1)")  # fmt: skip
    assert named.keys() <= {sha256 for (sha256,) in near}
    assert agrees(curated_copy, "demo")
    why = tell("why", shas[0], "--dataset", "demo", "--lake", str(curated_copy))
    assert "drops  contamination" in why and "small.png" in why
    page = html.parse(written(curated_copy)).getroot().get_element_by_id("dropped")
    beside = [hit for hit in page.iterfind(".//div[@data-id]") if len(hit.findall(".//img")) == 2]
    assert {"small.png", "worse.jpg", "same.png"} <= {hit.text_content().split(":")[0].strip() for hit in beside}
    assert f"{len(named)} pictures near to one of its" in page.text_content()
    with pm.open(curated_copy) as opened:  # thresholds are the cut's
        loose = opened.try_recut("demo", {"contamination.phash": 0})
        assert loose.missing == [] and loose.kept >= len(opened.dataset("demo"))


def test_a_recipe_without_the_section_has_its_old_identity_and_with_it_that_of_the_pictures():
    plain = load("demo", {}, RECIPES)
    assert "contamination" not in plain.model_dump(mode="json")
    here, there = (load("demo", {"contamination": f"{{sets: [{name}]}}"}, RECIPES) for name in ("a", "b"))
    assert here.digest() == there.digest() != plain.digest()


def test_a_set_is_known_by_its_bytes_not_its_names(tmp_path: Path):
    for folder, name in (("a", "1.png"), ("b", "2.png")):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (8, 8), "red").save(tmp_path / folder / name)
    a, b = ((str(tmp_path / name),) for name in "ab")
    assert content_of(a) == content_of(b)
    assert [file.name for file in pictures((*a, *b))] == ["1.png", "2.png"]


@pytest.mark.parametrize(
    ("name", "message"), [("missing", "is no folder on this machine"), ("empty", "has no picture")]
)
def test_a_set_without_pictures_is_refused_before_the_run(tmp_path: Path, name: str, message: str):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadRecipe, match=message):
        content_of((str(tmp_path / name),))
