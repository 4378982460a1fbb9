"""`pairmill recut --dry-run`: what a re-cut needs, keeps and leaves beside each threshold, against plain Python."""

import json
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


def test_a_trial_names_the_scores_that_a_run_must_make_and_their_cost(curated_copy: Path):
    with create_or_open(curated_copy, read_only=True) as lake:
        trial = try_recut(lake, "demo", {"images": []})
    assert trial.missing and all(each.n > 0 for each in trial.missing)
    for each in trial.missing:
        per_row = rows(
            curated_copy, f"SELECT sum(seconds) / sum(rows) FROM partitions WHERE \"table\" = '{each.score}'"
        )
        assert each.seconds == pytest.approx(each.n * per_row[0][0])
    # Without rules, every readable picture lacks what the rules had spared it.
    lacking = "SELECT count(*) FROM image_content ANTI JOIN image_quality USING (sha256)"
    quality = next(each.n for each in trial.missing if each.score == "image_quality")
    assert quality == rows(curated_copy, lacking)[0][0]


def test_a_rule_of_generated_texts_has_marginal_images_too(curated: Path):
    with create_or_open(curated, read_only=True) as lake:
        trial = try_recut(lake, "demo", {})
    found = {item.value for item in trial.marginal if item.rule == "pair_similarity"}
    assert found and found <= {value for (value,) in rows(curated, "SELECT synthetic_similarity FROM "
                                                          "synthetic_similarity")}  # fmt: skip


def test_the_command_loads_no_model_library(small: Path, tmp_path: Path):
    script = (
        "import sys\nfrom pairmill.flows.command.cli import main\n"
        f"status = main(['recut', 'small', '--set', 'balance.cap=3', '--dry-run', '--lake', {str(small)!r}])\n"
        "print(status, sorted({'torch', 'ray', 'prefect', 'pandas', 'transformers', 'faiss'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr


def test_json_has_what_the_table_has(small: Path, tell: Tell):
    place = ("recut", "small", "--set", "balance.cap=3", "--dry-run", "--lake", str(small))
    told, found = tell(*place), json.loads(tell(*place, "--format", "json"))
    assert found["before"] == "small@1" and len(found["missing"]) == told.count("needed  ")
    assert f"pairs   {found['kept']}; small@1 has" in told
    assert all(item["image_id"] in told for item in found["marginal"])


def test_a_recut_that_keeps_no_pair_publishes_nothing_and_has_a_status_of_its_own(
    curated_copy: Path, capsys: pytest.CaptureFixture[str]
):
    rule = "images.short_side.keep=width > 100000"
    assert main(["recut", "demo@1", "--set", rule, "--lake", str(curated_copy)]) == 3
    assert "no pair would be left, so no version is published" in capsys.readouterr().err
    assert rows(curated_copy, "SELECT max(version) FROM datasets") == [(1,)]
