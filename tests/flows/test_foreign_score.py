"""A package that Pairmill has never heard of brings a score with a model of its own; a recipe uses its columns."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pairmill.flows.run.settings import RECIPES
from tests.worlds.commands import run_in_one_process
from tests.worlds.line import rows

PACKAGE = Path(__file__).parents[1] / "packages" / "vividness"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built and installed by pip into a folder of its own."""
    place = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(PACKAGE, tmp_path_factory.mktemp("source") / "vividness")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", place]
    subprocess.run([*map(str, command), str(source)], check=True, capture_output=True)
    return place


def recipe(folder: Path, settings: dict[str, str], **more: object) -> Path:
    """The demo's recipe without what is generated, with a rule on the package's column."""
    content = yaml.safe_load((RECIPES / "demo.yaml").read_text())
    for part in ("sources", "captioners", "tags", "fuse"):
        del content[part]
    del content["models"]["captioner"], content["models"]["fuser"]
    del content["models"]["parser"], content["models"]["perplexity"]
    content["models"]["clip"] = settings["models.clip"]
    content["decoding"] = {"side": 64}
    content["images"] = [rule for rule in content["images"] if rule["name"] not in ("pair_similarity", "whole_text")]
    content["sentences"] = [rule for rule in content["sentences"] if rule["name"] in ("length", "no_url")]
    content["images"].append({"name": "vivid", "keep": "vividness >= 0.4 or is_vivid"})
    file = folder / "vivid.yaml"
    file.write_text(yaml.safe_dump({**content, "name": "vivid", **more}))
    return file


@pytest.mark.slow
def test_a_recipe_uses_the_score_of_a_package_until_that_is_gone(
    installed: Path, more_pages: Path, settings: dict[str, str], tmp_path: Path
):
    lake, file = tmp_path / "lake", recipe(tmp_path, settings)
    (tmp_path / "stricter").mkdir()
    stricter = recipe(tmp_path / "stricter", settings, scores={"vividness": {"threshold": 0.9}})
    place = ["--lake", str(lake)]
    run = ["run", str(file), "--source", str(more_pages), *place]
    done, again, foretold, waiting = run_in_one_process(
        [run, run, [*run, "--dry-run"], ["run", str(stricter), *run[2:], "--dry-run"]], installed
    )
    assert done.status == 0, done.err
    scored = rows(lake, "SELECT count(*), count(vividness), bool_and(is_vivid = (vividness > 0.5)) FROM vividness")
    readable = rows(lake, "SELECT count(*), count(brightness) FROM image_quality")
    assert scored == [(rows(lake, "SELECT count(*) FROM image_embedding")[0][0], readable[0][1], True)]
    fell, kept = "dropped_by = 'vivid'", "dropped_by = ''"
    of_image = "SELECT count(*) FROM decisions d JOIN images i ON i.image_id = d.item_id JOIN vividness USING (sha256)"
    assert rows(lake, f"{of_image} WHERE {fell} AND vividness >= 0.4") == [(0,)]
    assert rows(lake, f"{of_image} WHERE {kept} AND vividness < 0.4") == [(0,)]
    assert rows(lake, f"{of_image} WHERE {fell}")[0][0] > 0 < rows(lake, f"{of_image} WHERE {kept}")[0][0]
    (scorer,) = rows(lake, "SELECT name, version, settings, length(model) FROM scorers WHERE name = 'vividness'")
    assert scorer[:2] == ("vividness", 1) and '"threshold": 0.5' in scorer[2] and scorer[3] == 32
    assert again.status == 0 and "unchanged" in again.out
    assert "nothing is pending" in foretold.out
    assert "score images" in waiting.out  # a setting of the op is identity

    one = rows(lake, f"SELECT item_id FROM decisions WHERE {fell} LIMIT 1")[0][0]
    why = ["why", one, *place]
    (with_it,) = run_in_one_process([why], installed)
    new = [*run[:-1], str(tmp_path / "new")]
    others = [["datasets", *place], ["sql", "SELECT avg(vividness) FROM vividness", *place], ["quarantine", *place]]
    refused, gone, without, *read = run_in_one_process([new, run, why, *others])
    for story in (with_it, without):
        assert story.status == 0 and "vivid" in story.out, story.err
    for each in (refused, gone):
        assert each.status == 1 and "rule 'vivid': no scorer computes 'is_vivid'" in each.err
    assert not (tmp_path / "new").exists()
    assert [each.status for each in read] == [0, 0, 0], read
