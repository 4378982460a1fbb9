"""A package that Pairmill has never heard of brings a score with a model of its own; a recipe uses its columns."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pairmill.flows.run.settings import RECIPES, ROOT
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
    content["models"]["clip"] = settings["models.clip"]
    content["decoding"] = {"side": 64}
    content["images"] = [rule for rule in content["images"] if rule["name"] not in ("pair_similarity", "whole_text")]
    content["images"].append({"name": "vivid", "keep": "vividness >= 0.4 or is_vivid"})
    file = folder / "vivid.yaml"
    file.write_text(yaml.safe_dump({**content, "name": "vivid", **more}))
    return file


def pairmill(*arguments: object, path: Path | None) -> subprocess.CompletedProcess[str]:
    places = [str(place) for place in (path, ROOT) if place]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, "-m", "pairmill.flows.command.cli", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_recipe_uses_the_score_of_a_package_until_that_is_gone(
    installed: Path, pages: Path, settings: dict[str, str], tmp_path: Path
):
    lake, file = tmp_path / "lake", recipe(tmp_path, settings)
    refused = pairmill("run", file, "--source", pages, "--lake", lake, path=None)
    assert refused.returncode == 1 and "rule 'vivid': no scorer computes 'is_vivid'" in refused.stderr

    done = pairmill("run", file, "--source", pages, "--lake", lake, path=installed)
    assert done.returncode == 0, done.stderr
    scored = rows(lake, "SELECT count(*), count(vividness), bool_and(is_vivid = (vividness > 0.5)) FROM vividness")
    readable = rows(lake, "SELECT count(*), count(brightness) FROM image_quality")
    assert scored == [(rows(lake, "SELECT count(*) FROM image_embedding")[0][0], readable[0][1], True)]
    fell, kept = "dropped_by = 'vivid'", "dropped_by = ''"
    of_image = "SELECT count(*) FROM decisions d JOIN images i ON i.image_id = d.item_id JOIN vividness USING (sha256)"
    assert rows(lake, f"{of_image} WHERE {fell} AND vividness >= 0.4") == [(0,)]
    assert rows(lake, f"{of_image} WHERE {kept} AND vividness < 0.4") == [(0,)]
    assert rows(lake, f"{of_image} WHERE {fell}")[0][0] > 0
    (scorer,) = rows(lake, "SELECT name, version, settings, length(model) FROM scorers WHERE name = 'vividness'")
    assert scorer[:2] == ("vividness", 1) and '"threshold": 0.5' in scorer[2] and scorer[3] == 32

    again = pairmill("run", file, "--source", pages, "--lake", lake, path=installed)
    assert again.returncode == 0 and "unchanged" in again.stdout
    foretold = pairmill("run", file, "--source", pages, "--dry-run", "--lake", lake, path=installed)
    assert "nothing is pending" in foretold.stdout
    (tmp_path / "stricter").mkdir()
    stricter = recipe(tmp_path / "stricter", settings, scores={"vividness": {"threshold": 0.9}})
    waiting = pairmill("run", stricter, "--source", pages, "--dry-run", "--lake", lake, path=installed).stdout
    assert "score images" in waiting  # a setting of the op is identity

    one = rows(lake, f"SELECT item_id FROM decisions WHERE {fell} LIMIT 1")[0][0]
    for path in (installed, None):
        story = pairmill("why", one, "--lake", lake, path=path)
        assert story.returncode == 0 and "vivid" in story.stdout, story.stderr
    gone = pairmill("run", file, "--source", pages, "--lake", lake, path=None)
    assert gone.returncode == 1 and "no scorer computes 'is_vivid'" in gone.stderr
    for command in (("datasets",), ("sql", "SELECT avg(vividness) FROM vividness"), ("quarantine",)):
        assert pairmill(*command, "--lake", lake, path=None).returncode == 0, command
