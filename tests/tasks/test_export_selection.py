"""What an export takes: one split, a nested size, a number of pairs, or a mixture of versions with exact counts."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pairmill as pm
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.compare.trial_cut import cut_plan
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.queries.export.exports import with_pairs_of
from pairmill.catalog.queries.export.selected_pairs import divided, largest_mixture
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.command.cli import main
from pairmill.flows.command.removals import _describe_takedown
from pairmill.ops.whole.components import components
from pairmill.tasks.release.export.export_forms import SUFFIX
from tests.worlds.published import published

N = 12
MIXED = ("small@1:3", "other@1:1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of small@1 (12 pairs), other@1 (8 of these), divided@1 (splits and sizes) and held@1 (test only)."""
    place = tmp_path_factory.mktemp("selected") / "lake"
    published(place, pictures=N, cap=N, image_rules=())
    with create_or_open(place) as lake:
        plan = cut_plan(lake, find(lake, "small"))
        cut(lake, plan)
        more = {"splits": {"train": 0.5, "test": 0.5}, "split_by": ["documents"], "sizes": {"nano": 2, "full": 1}}
        recipe = plan.recipe.with_({"name": "divided"} | more)
        publish(lake, replace(plan, recipe=recipe), "run-2", 0.9, lambda: 20, components)
        for name, of, kept in (("other", "small", "true ORDER BY sha256 LIMIT 8"), ("held", "divided", "true")):
            lake.execute(
                f"INSERT INTO pairs SELECT * REPLACE ('{name}' AS dataset, 'by {name}' AS caption) FROM pairs "
                f"WHERE dataset = '{of}' AND {kept}"
            )
            n = "(SELECT count(*) FROM pairs WHERE dataset = name)"
            row = f"SELECT * REPLACE ('{name}' AS name) FROM datasets WHERE name = '{of}'"
            lake.execute(f"INSERT INTO datasets SELECT * REPLACE ({n} AS n_pairs) FROM ({row})")
        lake.execute("UPDATE pairs SET split = 'test' WHERE dataset = 'held'")
    return place


@pytest.fixture
def lake(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder, tmp_path / "lake")
    return tmp_path / "lake"


def taken(place: Path) -> set[tuple[str, str]]:
    """Return version and image id of each exported pair, and check that no picture stands twice."""
    rows = [row for path in place.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert len({row["sha256"] for row in rows}) == len(rows)
    return {(row["origin"], row["image_id"]) for row in rows}


@pytest.mark.slow
def test_a_mixture_has_exact_counts_by_seed_and_a_larger_one_holds_the_smaller(lake: Path, tmp_path: Path):
    found = {}
    with pm.open(lake) as opened:
        for name, more in {
            "most": {},
            "few": {"pairs": 8},
            "same": {"pairs": 8},
            "else": {"pairs": 8, "seed": 1},
        }.items():
            opened.export(MIXED, str(tmp_path / name), "texts", **more)
            found[name] = taken(tmp_path / name)
    counts = {name: Counter(origin for origin, _ in rows) for name, rows in found.items()}
    assert counts["most"] == {
        "small@1": 9,
        "other@1": 3,
    }  # all 12 pictures, though other@1 has only pictures of small@1
    assert counts["few"] == counts["else"] == {"small@1": 6, "other@1": 2}
    assert found["few"] == found["same"] != found["else"] and found["few"] < found["most"]
    told = json.loads((tmp_path / "few/.manifest.json").read_text())
    wanted = {"mixture": "small@1:3 other@1:1", "pairs": 8, "seed": 0, "rows": 8}
    assert {name: told[name] for name in wanted} == wanted
    line = "Selected by mixture small@1:3 other@1:1 pairs 8 seed 0: 6 pairs of small@1, 2 pairs of other@1."
    described = json.loads((tmp_path / "few/.croissant.json").read_text())
    assert line in (tmp_path / "few/README.md").read_text() and line in described["description"]
    assert sum(step.startswith("Recipe") for step in described["rai:dataPreprocessingProtocol"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("form", sorted(set(SUFFIX) - {"obelics", "card"}))
def test_every_form_of_pairs_takes_a_mixture_which_a_takedown_names_once(form: str, lake: Path, tmp_path: Path, capsys):
    place = tmp_path / "out"
    assert main(["export", *MIXED, "--to", str(place), "--format", form, "--lake", str(lake)]) == 0
    assert ": 12 pairs in" in capsys.readouterr().out
    with create_or_open(lake) as opened:
        assert opened.query("SELECT dataset, version, rows FROM exports ORDER BY rows") == [
            ("other", 1, 3),
            ("small", 1, 9),
        ]
        (export,) = with_pairs_of(opened, [find(opened, "other")])
        assert export == {"dataset": "small@1 other@1", "format": form, "uri": str(place)}
    line = next(_describe_takedown({"versions": [], "exports": [export]}))
    assert f"with its own options: pairmill export small@1 other@1 --format {form} --to {place}" in line
    assert main(["export", *MIXED, "--to", str(place), "--format", form, "--lake", str(lake)]) == 0  # nothing to write
    assert main(["export", *MIXED, "--seed", "1", "--to", str(place), "--format", form, "--lake", str(lake)]) != 0
    assert "of the mixture small@1:3 other@1:1 with --seed 0" in capsys.readouterr().err


@pytest.mark.slow
def test_each_picture_of_a_mixture_has_the_captions_of_its_own_version(lake: Path, tmp_path: Path):
    with pm.open(lake) as opened:
        opened.export(MIXED, str(tmp_path / "out"), "parquet", captions="all")
    rows = pq.read_table(next((tmp_path / "out").glob("*.parquet"))).to_pylist()
    assert len(rows) == N and all(len(row["captions"]) == 1 for row in rows)
    assert all((row["caption"] == "by other") == (row["origin"] == "other@1") for row in rows)


@pytest.mark.slow
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


@pytest.mark.slow
def test_no_picture_that_a_version_holds_out_is_in_another_split_of_the_mixture(lake: Path, tmp_path: Path):
    with pm.open(lake) as opened:
        pictures = {row["image_id"]: row["split"] for row in opened.dataset("divided").arrow().to_pylist()}
        opened.export(("divided", "held"), str(tmp_path / "out"), "texts", split="test")
    of_test = {key for key, split in pictures.items() if split == "test"}
    assert {image for _, image in taken(tmp_path / "out")} == of_test  # the others are train in divided@1


@pytest.mark.parametrize(
    ("specs", "more", "why"),
    [
        (["small:-1", "other:2"], {}, "'small:-1' has no weight above 0"),
        (["small:0", "other"], {}, "'small:0' has no weight above 0; give one such as small:0.7"),
        (["small:x"], {}, "'small:x' has no weight"),
        (["small:nan", "other"], {}, "'small:nan' has no weight"),
        (["small@7", "other"], {}, "no version 7"),
        (["small", "small@1:2"], {}, "small@1 stands twice in the mixture. Give it once"),
        (["small", "divided"], {}, "divided@1 has splits, and a mixture is of one: give --split train or test"),
        (["small", "divided"], {"split": "train"}, "small@1 has none of this name; it has no splits; make some"),
        (["divided", "held"], {"split": "train"}, r"divided@1 gives none \(divided@1 has 0, held@1 has 0"),
        (["divided"], {"split": "trian"}, "did you mean 'train'"),
        (["divided"], {"size": "lite"}, "--size lite: divided@1 has none of this name; there are full, nano"),
        (MIXED, {"pairs": 13}, r"13 pairs: there are 12 at most \(small@1 has 12, other@1 has 8; a picture"),
        (MIXED, {"pairs": 1}, "1 pairs: other@1 gives none"),
        (["small"], {"pairs": 0}, "--pairs 0: give 1 or more"),
        (MIXED, {"format": "obelics"}, "a mixture chooses pairs, and obelics has whole documents"),
        (["small"], {"pairs": 2, "format": "obelics"}, "--pairs chooses pairs, and obelics has whole documents"),
        (["divided"], {"format": "obelics"}, "has splits, and --format obelics has no files by split. Choose one"),
    ],
)
def test_what_cannot_be_selected_is_told_with_the_remedy(specs, more: dict, why: str, folder: Path, tmp_path: Path):
    with pm.open(folder) as opened, pytest.raises(PairmillError, match=why) as told:
        opened.export(specs, str(tmp_path / "out"), **more)
    assert "\n" not in str(told.value) and not (tmp_path / "out").exists()


@given(
    sizes=st.dictionaries(st.integers(1, 7), st.integers(1, 30), min_size=1),
    weights=st.lists(st.integers(1, 9), min_size=3, max_size=3),
)
def test_the_mixture_is_the_largest_that_the_versions_can_give(sizes: dict[int, int], weights: list[int]):
    shares = [Fraction(each) for each in weights]

    def is_possible(n: int) -> bool:
        """Hall's condition: any versions want no more than the pictures that at least one of them has."""
        wanted = divided(n, shares)
        groups = [group for size in (1, 2, 3) for group in combinations(range(3), size)]
        has = {
            group: sum(n for key, n in sizes.items() if any(key >> place & 1 for place in group)) for group in groups
        }
        return all(sum(wanted[place] for place in group) <= has[group] for group in groups)

    owned = largest_mixture(sizes, shares)
    n = sum(owned.values())
    assert [sum(m for (_, place), m in owned.items() if place == each) for each in range(3)] == divided(n, shares)
    assert all(key >> place & 1 for key, place in owned)
    assert all(sum(m for (where, _), m in owned.items() if where == key) <= most for key, most in sizes.items())
    assert is_possible(n) and not is_possible(n + 1)
