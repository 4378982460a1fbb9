"""What an export takes: one split, a nested size, or a number of pairs."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import pairmill as pm
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.compare.trial_cut import cut_plan
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.command.cli import main
from pairmill.ops.whole.components import components
from pairmill.tasks.release.export.export_forms import SUFFIX
from tests.worlds.published import published

N = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of small@1 (12 pairs) and divided@1 (splits and sizes)."""
    place = tmp_path_factory.mktemp("selected") / "lake"
    published(place, pictures=N, cap=N, image_rules=())
    with create_or_open(place) as lake:
        plan = cut_plan(lake, find(lake, "small"))
        cut(lake, plan)
        more = {"splits": {"train": 0.5, "test": 0.5}, "split_by": ["documents"], "sizes": {"nano": 2, "full": 1}}
        recipe = plan.recipe.with_({"name": "divided"} | more)
        publish(lake, replace(plan, recipe=recipe), "run-2", 0.9, lambda: 20, components)
    return place


@pytest.fixture
def lake(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder, tmp_path / "lake")
    return tmp_path / "lake"


def test_a_number_of_pairs_is_drawn_by_seed_and_a_larger_one_holds_the_smaller(lake: Path, tmp_path: Path, capsys):
    found = {}
    with pm.open(lake) as opened:
        for name, more in {"most": {"pairs": N}, "few": {}, "same": {}, "else": {"seed": 1}}.items():
            opened.export("small@1", str(tmp_path / name), "texts", **{"pairs": 8} | more)
            found[name] = pq.read_table(next((tmp_path / name).glob("*.parquet")))["sha256"].to_pylist()
    assert [len(set(rows)) for rows in found.values()] == [N, 8, 8, 8]

    def order(sha256: str) -> str:
        return hashlib.sha256(f"{sha256}/mixture/0".encode()).hexdigest()[32:]

    assert set(found["few"]) == set(found["same"]) == set(sorted(found["most"], key=order)[:8]) != set(found["else"])
    told = json.loads((tmp_path / "few/.manifest.json").read_text())
    assert {name: told[name] for name in ("pairs", "seed", "rows")} == {"pairs": 8, "seed": 0, "rows": 8}
    line = "Selected by pairs 8 seed 0: 8 pairs of small@1."
    described = json.loads((tmp_path / "few/.croissant.json").read_text())
    assert line in (tmp_path / "few/README.md").read_text() and line in described["description"]
    again = ["export", "small", "--pairs", "8", "--to", str(tmp_path / "few"), "--format", "texts", "--lake", str(lake)]
    assert main(again) == 0 and main([*again, "--seed", "1"]) != 0
    assert "with --pairs 8 with --seed 0" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("form", sorted(set(SUFFIX) - {"obelics", "card"}))
def test_every_form_of_pairs_takes_a_number_of_pairs(form: str, lake: Path, tmp_path: Path, capsys):
    command = ["export", "small", "--pairs", "8", "--to", str(tmp_path / "out"), "--format", form, "--lake", str(lake)]
    assert main(command) == 0 and ": 8 pairs in" in capsys.readouterr().out
    with create_or_open(lake) as opened:
        assert opened.query("SELECT dataset, version, rows FROM exports") == [("small", 1, 8)]
    assert main(command) == 0  # nothing to write


def test_a_split_and_a_nested_size_are_taken_alone(lake: Path, tmp_path: Path):
    with pm.open(lake) as opened:
        rows = opened.dataset("divided").arrow().to_pylist()
        for format, grow in (("texts", False), ("obelics", False), ("texts", True)):
            place = tmp_path / f"{format}-{grow}"
            command = ["export", "divided", "--split", "train", "--format", format, *(["--grow"] if grow else [])]
            assert main([*command, "--to", str(place), "--lake", str(lake)]) == 0
            (table,) = place.glob("*-train-000000.parquet")
            held = {"document_id" if format == "obelics" else "image_id": {row["image_id"] for row in rows
                    if row["split"] == "train"}}  # fmt: skip
            if format == "texts":
                assert set(pq.read_table(table)["image_id"].to_pylist()) == held["image_id"]
            else:
                told = [json.loads(row) for row in pq.read_table(table)["metadata"].to_pylist()]
                assert {each["image_id"] for row in told for each in row if each} == held["document_id"]
        opened.export("divided", str(tmp_path / "nano"), "texts", split="train", size="nano")
    table = next((tmp_path / "nano").glob("*-train-000000.parquet"))
    nano = {row["image_id"] for row in rows if (row["split"], row["size"]) == ("train", "nano")}
    assert set(pq.read_table(table)["image_id"].to_pylist()) == nano and len(nano) == 2
    assert "path: divided-v1-train-*.parquet" in (tmp_path / "nano/README.md").read_text()


@pytest.mark.parametrize(
    ("name", "more", "why"),
    [
        ("small@7", {}, "no version 7"),
        ("small", {"split": "train"}, "small@1 has none of this name; it has no splits; make some"),
        ("divided", {"split": "trian"}, "did you mean 'train'"),
        ("divided", {"size": "lite"}, "--size lite: divided@1 has none of this name; there are full, nano"),
        ("small", {"pairs": 13}, "13 pairs: small@1 has 12"),
        ("small", {"pairs": 0}, "--pairs 0: give 1 or more"),
        ("small", {"pairs": 2, "format": "obelics"}, "--pairs chooses pairs, and obelics has whole documents"),
        ("divided", {"format": "obelics"}, "has splits, and --format obelics has no files by split. Choose one"),
    ],
)
def test_what_cannot_be_selected_is_told_with_the_remedy(name: str, more: dict, why: str, folder: Path, tmp_path: Path):
    with pm.open(folder) as opened, pytest.raises(PairmillError, match=why) as told:
        opened.export(name, str(tmp_path / "out"), **more)
    assert "\n" not in str(told.value) and not (tmp_path / "out").exists()
