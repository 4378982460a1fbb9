"""What a machine of a cluster lacks is found there: one planted fault each, with its remedy."""

from dataclasses import replace
from pathlib import Path

import pytest

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.machine import cluster_nodes
from pairmill.flows.machine.cluster_nodes import Expected, NodeReport, check_nodes, expected, node_state
from pairmill.flows.machine.finding import Finding
from pairmill.flows.run.settings import load_recipe

HERE = expected("", (), None)


def failed(wanted: Expected) -> dict[str, str]:
    """Return check -> finding and remedy of what stops a run here."""
    return {name: f"{each.text}: {each.remedy}" for name, each in node_state(wanted) if each.state == "fail"}


def test_a_machine_as_the_one_that_starts_runs_lacks_nothing(tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/part.parquet").write_bytes(b"rows")
    wanted = expected(str(tmp_path / "data"), (str(tmp_path),), load_recipe("demo", {}))
    assert wanted.files == ("part.parquet",)
    assert failed(wanted) == {}
    assert {name for name, _ in node_state(wanted)} >= {"versions", "devices", "disk", "sources", "lake", "models"}


@pytest.mark.parametrize(
    ("changed", "check", "text"),
    [
        ({"python": "3.9"}, "versions", "not 3.9: install Python 3.9 there"),
        ({"pairmill": "9.9"}, "versions", "not 9.9: pip install pairmill==9.9"),
        ({"extensions": ("aesthetics==1.2",)}, "versions", "no aesthetics==1.2: pip install aesthetics==1.2"),
        ({"sources": ("/nowhere/pages",)}, "sources", "/nowhere/pages: is not on this machine: put it on S3, or"),
        ({"data_path": "/nowhere/data/", "files": ("a.parquet",)}, "lake", "/nowhere/data/: is not on this machine"),
    ],
)
def test_each_fault_is_found_with_its_remedy(changed: dict, check: str, text: str):
    assert text in failed(replace(HERE, **changed))[check]


def test_a_folder_of_the_same_name_with_other_files_is_not_the_shared_one(tmp_path: Path):
    (tmp_path / "other.parquet").write_bytes(b"rows")
    wanted = replace(HERE, data_path=str(tmp_path), files=("part.parquet",))
    assert "mounts at this path" in failed(wanted)["lake"]


def test_other_versions_of_packages_are_a_warning():
    found = [each for name, each in node_state(replace(HERE, packages="0" * 12)) if name == "versions"]
    assert [each.state for each in found] == ["warn"] and "infra/requirements.lock" in found[0].remedy


def test_a_missing_model_is_named():
    recipe = load_recipe("demo", {"models.clip": "open_clip:local-dir:/nowhere/clip"})
    assert "no folder /nowhere/clip" in failed(replace(HERE, recipe=recipe))["models"]


def test_s3_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch):
    from tests.worlds.s3 import fresh_filesystem

    for name, value in (("ENDPOINT_URL", "http://127.0.0.1:9"), ("ACCESS_KEY_ID", "k"), ("SECRET_ACCESS_KEY", "k")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fresh_filesystem()
    assert "set AWS_ENDPOINT_URL" in failed(replace(HERE, sources=("s3://bucket/pages",)))["sources"]
    fresh_filesystem()


def test_a_run_is_refused_by_the_first_machine_that_works_and_lacks_something(monkeypatch: pytest.MonkeyPatch):
    lacking = (("sources", Finding("fail", "source /pages: is not on this machine", "put it on S3")),)
    head, good, bad = NodeReport("head", 0, 0, lacking), NodeReport("a", 4, 0, ()), NodeReport("b", 4, 1, lacking)
    recipe = load_recipe("demo", {})
    monkeypatch.setattr(cluster_nodes, "examine_nodes", lambda *given: [head, good])
    check_nodes("auto", "lake", (), recipe)
    monkeypatch.setattr(cluster_nodes, "examine_nodes", lambda *given: [head, good, bad])
    with pytest.raises(
        PairmillError, match=r"1 of 2 machines .* b: source /pages: is not .*: put it on S3\. `pairmill"
    ):
        check_nodes("auto", "lake", (), recipe)
