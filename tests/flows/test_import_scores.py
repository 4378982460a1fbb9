"""`pairmill import-scores`: a file's numbers become a column that rules read, in every command that knows scores."""

import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pairmill as pm
from pairmill.catalog.terms.error import BadRecipe, PairmillError
from tests.reference.second_cut import agrees
from tests.worlds.commands import Tell
from tests.worlds.generated import small_settings
from tests.worlds.line import curate, rows
from tests.worlds.published import published

KEPT = "SELECT DISTINCT sha256 FROM images JOIN decisions ON item_id = image_id WHERE dropped_by = '' ORDER BY sha256"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A lake whose dataset `small` has twelve pictures, all kept."""
    published(tmp_path / "lake", cap=12, image_rules=())
    return tmp_path / "lake"


def file_of(folder: Path, table: dict[str, Any]) -> Path:
    pq.write_table(pa.table(table), folder / "scores.parquet")
    return folder / "scores.parquet"


def with_rule(opened: pm.OpenLake, keep: str, dataset: str = "demo") -> dict[str, Any]:
    """Return the settings that read the imported score in a rule after those of the dataset's newest version."""
    rules = [rule.model_dump(mode="json", exclude_none=True) for rule in opened.dataset(dataset).recipe.images]
    return {"imported": ["aesthetic"], "images": [*rules, {"name": "pretty", "keep": keep}]}


def drops(lake: Path, dataset: str) -> set[str]:
    """Return the pictures that the rule on the imported score drops."""
    sql = (
        "SELECT DISTINCT sha256 FROM images JOIN decisions ON item_id = image_id "
        f"WHERE dataset = '{dataset}' AND dropped_by = 'pretty'"
    )
    return {sha256 for (sha256,) in rows(lake, sql)}


@pytest.mark.slow
def test_a_rule_reads_the_numbers_and_drops_pictures_without_one(curated_copy: Path, tmp_path: Path):
    kept = [sha256 for (sha256,) in rows(curated_copy, KEPT)]
    values = pa.array([4.4 + n / 10 for n in range(len(kept) - 1)], pa.float32())  # of the last picture there is none
    names = [f"{sha256}{'0' * 32}".upper() for sha256 in kept[:-1]]
    with pm.open(curated_copy) as opened:
        done = opened.import_scores(file_of(tmp_path, {"sha256": names, "aesthetic": values}), "aesthetic", "sha256")
        pictures = rows(curated_copy, "SELECT count(*) FROM image_content")[0][0]
        assert (done.rows, done.unmatched, done.added, done.scored) == (len(names), 0, len(names), len(names))
        assert done.without == pictures - len(names)
        opened.recut("demo", with_rule(opened, "aesthetic >= 5.1"), name="strict")
        # The eighth picture's 5.1 is a decimal that binary of 32 bits puts below 5.1.
        assert drops(curated_copy, "strict") & set(kept) == {*kept[:7], kept[-1]}
        opened.recut("demo", with_rule(opened, "coalesce(aesthetic, 9) >= 5.1"), name="mild")
        assert drops(curated_copy, "mild") == set(kept[:7])


@pytest.mark.slow
def test_the_same_file_again_changes_nothing_and_another_takes_its_place(curated_copy: Path, tmp_path: Path):
    kept = [sha256 for (sha256,) in rows(curated_copy, KEPT)]

    def imported(opened: pm.OpenLake, value: float) -> Any:
        return opened.import_scores(
            file_of(tmp_path, {"sha256": kept, "aesthetic": [9.0, *[value] * (len(kept) - 1)]}), "aesthetic", "sha256"
        )

    with pm.open(curated_copy) as opened:
        settings, before = with_rule(opened, "aesthetic > 5"), len(opened.dataset("demo"))
        first = imported(opened, 1.0)
        snapshot = opened.snapshot
        assert imported(opened, 1.0).added == 0 and opened.snapshot == snapshot
        assert len(opened.recut("demo@1", settings, name="a")) == 1
        assert imported(opened, 9.0).scorer != first.scorer
        assert len(opened.recut("demo@1", settings, name="a")) == before
        again = imported(opened, 1.0)
        assert (again.added, again.scorer) == (0, first.scorer)
        assert len(opened.recut("demo@1", settings, name="a")) == 1


@pytest.mark.slow
def test_a_run_reads_the_newest_import_as_a_recut_does(curated_copy: Path, tmp_path: Path, pages: Path):
    kept = [sha256 for (sha256,) in rows(curated_copy, KEPT)]
    scores = file_of(tmp_path, {"sha256": kept, "aesthetic": list(range(len(kept)))})
    changes = {"imported": ["aesthetic"], "images.short_side.keep": "least(width, height) >= 64 AND aesthetic >= 30"}
    with pm.open(curated_copy) as opened:
        opened.import_scores(scores, "aesthetic", "sha256")
        trial = opened.try_recut("demo", changes)
    settings = {"imported": "[aesthetic]", "images.short_side.keep": changes["images.short_side.keep"]}
    published, _ = curate(curated_copy, pages, settings=small_settings() | settings)
    assert published.n_pairs == trial.kept == len(kept) - 30


@pytest.mark.slow
@pytest.mark.parametrize("key", ["image_id", "url"])
def test_pictures_are_named_by_id_or_address(small: Path, tmp_path: Path, key: str):
    sizes = dict(rows(small, "SELECT sha256, width FROM image_content"))
    named = dict(rows(small, f"SELECT {key}, sha256 FROM images"))
    table = {key: [*named, "unknown"], "w": [*(sizes[sha256] for sha256 in named.values()), 3]}
    with pm.open(small) as opened:
        done = opened.import_scores(file_of(tmp_path, table), "aesthetic", key, column="w")
    assert (done.scored, done.unmatched) == (len(set(named.values())), 1)
    stored = dict(rows(small, "SELECT sha256, aesthetic FROM imported_aesthetic"))
    assert stored == {sha256: sizes[sha256] for sha256 in named.values()}


@pytest.mark.slow
def test_other_commands_know_the_score(curated_copy: Path, tmp_path: Path, tell: Tell):
    lake, kept = str(curated_copy), [sha256 for (sha256,) in rows(curated_copy, KEPT)]
    scores = file_of(tmp_path, {"sha256": kept, "aesthetic": list(range(len(kept)))})
    printed = tell("import-scores", str(scores), "--key", "sha256", "--name", "aesthetic", "--lake", lake)
    assert f"aesthetic: {len(kept)} of" in printed and "imported: [aesthetic]" in printed
    (line,) = (each for each in printed.splitlines() if each.startswith("its half now: pairmill "))
    assert tell(*shlex.split(line)[4:], "--name", "half").startswith("half@1  ")
    with pm.open(lake) as opened:
        opened.recut("demo", with_rule(opened, "aesthetic >= 3"), name="pretty")
    assert agrees(lake, "pretty")
    assert "aesthetic" in tell("why", kept[1], "--dataset", "pretty", "--lake", lake)
    compared = tell("diff", "demo", "pretty", "--lake", lake)
    assert "gained 0, lost 3" in compared and "pretty" in compared.split("because of")[1]
    assert "all whole" in tell("check", "--deep", "--lake", lake)
    tell("takedown", "--document", rows(lake_path := curated_copy, "SELECT document_id FROM images WHERE sha256 = "
         f"'{kept[0]}'")[0][0], "--yes", "--lake", lake)  # fmt: skip
    left = rows(lake_path, "SELECT sha256 FROM imported_aesthetic")
    gone = rows(lake_path, "SELECT sha256 FROM imported_aesthetic ANTI JOIN images USING (sha256)")
    assert len(left) < len(kept) and not gone
    assert "all whole" in tell("check", "--deep", "--lake", lake)


@pytest.mark.parametrize(
    ("table", "name", "message"),
    [
        ({"sha256": ["a"], "aesthetic": ["good"]}, "aesthetic", "is VARCHAR; a score is a number"),
        ({"id": ["a"], "aesthetic": [1.0]}, "aesthetic", "has no column 'sha256'; it has id, aesthetic"),
        ({"sha256": ["a"], "aesthetic": [float("nan")]}, "aesthetic", "1 values of 'aesthetic' are no finite numbers"),
        ({"sha256": ["a"], "brightness": [1.0]}, "brightness", "rules read another value under this name"),
        ({"sha256": ["a"], "x": [1.0]}, "Nice Score", "small letters, digits and underscores"),
        ({"sha256": ["ONE", "ONE"], "aesthetic": [1.0, 2.0]}, "aesthetic", "have two values of 'aesthetic': "),
    ],
)
def test_a_file_that_is_not_fit_is_refused_in_one_line(
    small: Path, tmp_path: Path, table: dict[str, list], name: str, message: str
):
    one = rows(small, "SELECT min(sha256) FROM image_content")[0][0]
    scores = {column: [one if value == "ONE" else value for value in values] for column, values in table.items()}
    with pm.open(small) as opened, pytest.raises(PairmillError) as refused:
        opened.import_scores(file_of(tmp_path, scores), name, "sha256")
    assert message in str(refused.value) and "\n" not in str(refused.value)
    with pm.open(small) as opened:
        assert not [table for table in opened.lake.tables if table.startswith("imported_")]


def test_a_recipe_that_reads_what_was_never_imported_says_how_to_import_it(small: Path):
    with pm.open(small) as opened:
        settings = with_rule(opened, "aesthetic >= 5", "small")
        with pytest.raises(BadRecipe, match=r"import-scores FILE\.parquet --name aesthetic"):
            opened.try_recut("small", settings)
        with pytest.raises(BadRecipe, match="no scorer computes 'aesthetic'"):
            opened.try_recut("small", {"images": settings["images"]})
