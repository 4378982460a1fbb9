"""`pairmill recut --dry-run`: what a re-cut needs, keeps and leaves beside each threshold, against plain Python."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import pairmill as pm
from pairmill.catalog.lake.opening import create_or_open
from pairmill.flows.command.cli import main
from pairmill.tasks.recut import CutTrial, try_recut
from tests.worlds.commands import Tell
from tests.worlds.line import rows
from tests.worlds.published import published
from tests.worlds.shared import made_once

SIDES = "least(width, height)"


@pytest.fixture(scope="module")
def small() -> Path:
    return made_once("recut-trial", lambda place: published(place, pictures=12, cap=12))


def tried(lake: Path, **changes: object) -> CutTrial:
    with create_or_open(lake, read_only=True) as opened:
        return try_recut(opened, "small", {key.replace("__", "."): value for key, value in changes.items()})


@pytest.mark.slow
def test_the_nearest_images_on_each_side_are_those_of_a_sort_in_python(small: Path):
    trial = tried(small, images__short_side__keep=f"{SIDES} >= 75", balance__cap=5)
    sides = sorted((min(w, h), i) for i, w, h in rows(small, "SELECT image_id, width, height FROM images"))
    below = [(side, image) for side, image in reversed(sides) if side < 75][:3]
    assert {(item.value, item.image_id) for item in trial.marginal if item.value < 75} == set(below)
    decided = dict(rows(small, "SELECT item_id, dropped_by FROM decisions"))
    assert set(decided.values()) == {"", "short_side"}
    for item in trial.marginal:
        assert (item.rule, item.edge) == ("short_side", 75.0)
        assert item.dropped_by == ("short_side" if item.value < 75 else "")
        assert item.url.startswith("https://example.org/")


@pytest.mark.slow
def test_a_trial_counts_what_the_recut_then_publishes_under_another_name(curated_copy: Path):
    changes = {"images.short_side.keep": f"{SIDES} >= 150", "balance.cap": 2}
    with pm.open(curated_copy) as opened:
        trial = opened.try_recut("demo@1", changes)
        assert [str(each) for each in opened.datasets()] == ["demo@1"] and trial.missing == []
        made = opened.recut("demo@1", changes, name="strict")
        images = [step for step in made.funnel() if step.kind == "image"]
        assert (str(made), len(made), images) == ("strict@1", trial.kept, trial.funnel)
        assert trial.kept < len(opened.dataset("demo"))
        assert trial.funnel_before == [step for step in opened.dataset("demo").funnel() if step.kind == "image"]


@pytest.mark.slow
def test_a_trial_names_the_scores_that_a_run_must_make_and_their_cost(curated_copy: Path):
    with create_or_open(curated_copy, read_only=True) as lake:
        trial = try_recut(lake, "demo", {"images": []})
    assert trial.missing and all(each.n > 0 for each in trial.missing)
    for each in trial.missing:
        per_row = rows(
            curated_copy, f"SELECT sum(seconds) / sum(rows) FROM partitions WHERE \"table\" = '{each.score}'"
        )
        assert each.seconds == pytest.approx(each.n * (per_row[0][0] or 0))  # no picture has the score yet
    # Without rules, every readable picture lacks what the rules had spared it.
    lacking = "SELECT count(*) FROM image_content ANTI JOIN image_quality USING (sha256)"
    quality = next(each.n for each in trial.missing if each.score == "image_quality")
    assert quality == rows(curated_copy, lacking)[0][0]


@pytest.mark.slow
def test_a_rule_of_generated_texts_has_marginal_images_too(curated: Path):
    with create_or_open(curated, read_only=True) as lake:
        trial = try_recut(lake, "demo", {})
    found = {item.value for item in trial.marginal if item.rule == "pair_similarity"}
    assert found and found <= {value for (value,) in rows(curated, "SELECT synthetic_similarity FROM "
                                                          "synthetic_similarity")}  # fmt: skip


@pytest.mark.slow
def test_the_command_loads_no_model_library(small: Path, tmp_path: Path):
    script = (
        "import sys\nfrom pairmill.flows.command.cli import main\n"
        f"status = main(['recut', 'small', '--set', 'balance.cap=3', '--dry-run', '--lake', {str(small)!r}])\n"
        "print(status, sorted({'torch', 'ray', 'prefect', 'pandas', 'transformers', 'faiss'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr


@pytest.mark.slow
def test_json_has_what_the_table_has(small: Path, tell: Tell):
    place = ("recut", "small", "--set", "balance.cap=3", "--dry-run", "--lake", str(small))
    told, found = tell(*place), json.loads(tell(*place, "--format", "json"))
    assert found["before"] == "small@1" and len(found["missing"]) == told.count("needed  ")
    assert f"pairs   {found['kept']}; small@1 has" in told
    assert all(item["image_id"] in told for item in found["marginal"])


@pytest.mark.slow
def test_a_recut_that_keeps_no_pair_publishes_nothing_and_has_a_status_of_its_own(
    curated_copy: Path, capsys: pytest.CaptureFixture[str]
):
    rule = "images.short_side.keep=width > 100000"
    assert main(["recut", "demo@1", "--set", rule, "--lake", str(curated_copy)]) == 3
    assert "no pair would be left, so no version is published" in capsys.readouterr().err
    assert rows(curated_copy, "SELECT max(version) FROM datasets") == [(1,)]


@pytest.mark.slow
def test_a_tried_rule_shows_its_rate_ten_pictures_a_side_and_the_line_that_publishes_it(curated_copy: Path, tell: Tell):
    lake = str(curated_copy)
    told = tell("recut", "demo", "--try", "width >= 300", "--lake", lake)
    with pm.open(lake) as opened:
        trial = opened.try_recut("demo", {"images.try.keep": "width >= 300"}, shown={"try": 10})
        dropped = {item.image_id for item in trial.marginal if item.dropped_by}
        kept = {item.image_id for item in trial.marginal if not item.dropped_by}
        assert 3 < len(dropped) <= 10 and 3 < len(kept) <= 10
        assert all(image_id in told for image_id in dropped | kept) and "/rules?dataset=demo@1" in told
        assert [str(each) for each in opened.datasets()] == ["demo@1"]
    (line,) = (each for each in told.splitlines() if each.startswith("to publish: pairmill "))
    made = tell(*shlex.split(line.replace("NAME", "wide"))[3:])
    assert made.startswith(f"demo@2  {trial.kept:,} pairs (published)")


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ("widht >= 5", "no scorer computes 'widht'; did you mean 'width'?"),
        ("width >= ", "rule 'try'"),
        ("width >= n_words", "reads scores of pictures and of texts (n_words, width); write two rules"),
    ],
)
def test_a_rule_that_cannot_be_tried_is_told_in_one_line(
    small: Path, capsys: pytest.CaptureFixture[str], keep: str, said: str
):
    assert main(["recut", "small", "--try", keep, "--lake", str(small)]) == 1
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1


@pytest.mark.slow
def test_a_recut_takes_the_rules_of_a_recipe_file_and_says_what_it_leaves(
    curated_copy: Path, tmp_path: Path, tell: Tell
):
    with pm.open(curated_copy) as opened:
        settings = opened.dataset("demo").recipe.record()
    settings["images"].append({"name": "wide", "keep": "width >= 300"})
    (tmp_path / "own.yaml").write_text(json.dumps(settings | {"seed": 7}))
    told = tell("recut", "demo", "--recipe", str(tmp_path / "own.yaml"), "--name", "own", "--lake", str(curated_copy))
    with pm.open(curated_copy) as opened:
        recipe = opened.dataset("own").recipe
    assert recipe.images[-1].name == "wide" and recipe.seed != 7 and told.splitlines()[-1].startswith("own@1")
