"""The GPU benches without a GPU: each row at toy size where little is installed, their budget, their bounds."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from infra.bench import gpu_all, gpu_table
from infra.bench.gpu_families import family_shape
from infra.bench.gpu_goals import GOALS, goal
from infra.bench.gpu_models import random_vlm
from infra.bench.gpu_refill import bound
from infra.bench.gpu_row import Seen, as_data
from infra.bench.gpu_shapes import VLMS, Decoder, Tower, Vlm
from infra.bench.gpu_timing import Ceilings, decode_bound, prefill_bound

ROOT = Path(__file__).resolve().parents[2]
# What a bare GPU machine lacks of Pairmill's own dependencies, and what may be carried there as wheels.
REFUSED = ("ray", "duckdb", "prefect", "pyarrow", "spacy", "scipy", "pandas")
CARRIED = ("open_clip", "simplejpeg", "torchvision")
# The rows that go another way without one of CARRIED, and one of each kind that would read JPEG files.
NEEDING_CARRIED = ["clip_stage", "caption_7b", "clip_eva", "run_smolvlm", "clip_model"]
EVERY = [row.name for row in gpu_all.ROWS]
HOOK = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {refused} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""


def bare_machine(folder: Path, without: tuple[str, ...]) -> dict[str, str]:
    """Copy what README says to copy into ``folder``; give an environment in which ``without`` are not installed."""
    for part, to in (("ops", "pairmill"), ("catalog/terms", "pairmill"), ("infra/bench", "")):
        shutil.copytree(ROOT / part, folder / to / part, ignore=shutil.ignore_patterns("__pycache__", "results"))
    (folder / "sitecustomize.py").write_text(HOOK.format(refused=without))
    return {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


def run_all(folder: Path, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infra.bench.gpu_all", "--size", "toy", "--out", str(folder / "gpu.json"), *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("without", "names"),
    [
        pytest.param(REFUSED, EVERY, id="every row, carried", marks=pytest.mark.full),
        pytest.param(REFUSED + CARRIED, NEEDING_CARRIED, id="every row, bare", marks=pytest.mark.full),
        pytest.param(REFUSED, ["caption_7b", "broken"], id="carried", marks=pytest.mark.slow),
        pytest.param(REFUSED + CARRIED, ["clip_eva"], id="bare", marks=pytest.mark.slow),
    ],
)
def test_rows_are_rehearsed_on_a_machine_without_the_pipelines_libraries(
    tmp_path: Path, without: tuple[str, ...], names: list[str]
):
    env = bare_machine(tmp_path, without)
    for name in without:
        assert subprocess.run([sys.executable, "-c", f"import {name}"], env=env, capture_output=True).returncode, name
    done = run_all(tmp_path, env, "--budget", "1600", "--only", *names)
    rows = json.loads((tmp_path / "gpu.json").read_text())
    assert {name: row["error"] for name, row in rows.items()} == dict.fromkeys(names, ""), done.stderr
    absent = {measure["note"] for row in rows.values() for measure in row["measures"] if measure["value"] is None}
    assert absent == ({"not measured: simplejpeg is absent"} if "simplejpeg" in without else set())
    seen = {(name, measure["what"]) for name, row in rows.items() for measure in row["measures"]}
    assert {(goal.row, goal.what) for goal in GOALS if goal.row in names} <= seen
    again = run_all(tmp_path, env, "--budget", "600", "--only", *names)
    assert again.stdout == "every row stands\n"


def test_a_row_that_does_not_fit_what_is_left_is_not_begun(tmp_path: Path):
    done = run_all(tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)}, "--budget", "5")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("left for another call: caption_17b_1225, ")
    assert not (tmp_path / "gpu.json").exists()


def test_a_row_that_compares_with_another_waits_for_it(tmp_path: Path):
    done = run_all(tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)}, "--only", "caption_7b_plain")
    assert done.stdout == "left for another call: caption_7b_plain\n"


def test_a_row_beyond_its_limit_is_ended_and_tried_again_by_the_next_call(tmp_path: Path):
    found = gpu_all.run(gpu_all.ROWS[-1], "toy", 0.2, tmp_path / "none.json")
    assert found["error"] == "not done after 0 s"
    assert not gpu_all.stands({"ceilings": found}, "ceilings", "toy")


def test_three_calls_of_nine_minutes_hold_every_row():
    known: set[str] = set()
    for _ in range(3):
        room = 540
        for row in gpu_all.ROWS:
            if row.name not in known and row.seconds <= room and (not row.after or row.after in known):
                known.add(row.name)
                room -= row.seconds
    assert known == {row.name for row in gpu_all.ROWS}


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        ("", True),
        ("batches of 8", True),
        ("not measured: one of both (caption_7b) is missing", False),
        ("not measured: no_such_library is absent", True),
        ("not measured: torch is absent", False),
    ],
)
def test_a_measure_that_was_not_taken_is_tried_again_unless_its_library_is_still_absent(note: str, expected: bool):
    row = {"size": "real", "error": "", "measures": [{"value": None if note else 3.0, "note": note}]}
    assert gpu_all.stands({"a": row}, "a", "real") == expected


def test_a_target_is_a_share_of_the_bound_that_the_same_card_has():
    shares = [as_data(Seen("captions", "img/s", value, 11.5))["share"] for value in (5.5, 6.0)]
    wanted = goal("caption_17b_1225", "captions", "img/s")
    assert [wanted.is_met(5.5, share) for share in shares] == [False, True]
    assert goal("caption_7b_plain", "ours / plain generate", "times").is_met(1.5, None) is True
    assert goal("caption_7b_plain", "captions, batches of 8", "img/s").is_met(1.5, None) is None


def test_a_million_texts_cost_the_hours_of_their_rate_at_the_price_of_an_hour_on_each_card(tmp_path: Path):
    rows = [
        {"device": card, "measures": [as_data(Seen("captions", "img/s", rate))]}
        for card, rate in (("A", 25), ("B", 50))
    ]
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"caption_7b": rows[0], "caption_7b on B": rows[1]}))
    assert gpu_table.costs(path, 2.5)[2:] == [
        "| `caption_7b`: captions | A | 90,000 | 11.11 | 27.78 |",
        "| `caption_7b`: captions | B | 180,000 | 5.56 | 13.89 |",
    ]
    assert gpu_table.costs(path)[2:] == [
        "| `caption_7b`: captions | A | 90,000 | 11.11 |",
        "| `caption_7b`: captions | B | 180,000 | 5.56 |",
    ]


def test_the_bound_of_texts_in_slots_counts_prefill_and_full_steps():
    card = Ceilings(bf16=600e12, fp32=50e12, bandwidth=3.0e12)
    shape = family_shape("smolvlm", "real")
    least = bound(shape, card, [120] * 512, [729] * 512, [60] * 512, 256)
    # By hand: 0.99 TFLOP a prompt are 1.65 ms; a step reads 3.4 GB and 256 rows of 150 tokens at 197 kB, in 3.66 ms.
    assert 512 / least == pytest.approx(1000 / (1.65 + 59 * 3.66 / 256), rel=0.01)
    assert bound(shape, card, [120] * 512, [729] * 512, [60] * 512, 128) > least


def test_without_a_result_every_goal_of_the_table_is_not_measured(tmp_path: Path):
    lines = gpu_table.table(tmp_path / "none.json").splitlines()[2:]
    assert len(lines) == len(GOALS)
    assert all("| not measured |" in line for line in lines)


def test_the_bounds_are_those_that_readme_tells():
    card = Ceilings(bf16=790e12, fp32=50e12, bandwidth=4.3e12)
    bounds = []
    for shape in VLMS.values():
        rows = shape.batches[-1]
        bounds.append(rows / (prefill_bound(shape, rows, card) + decode_bound(shape, rows, card)))
    assert bounds == pytest.approx([134, 53, 16], rel=0.01)
    assert "134 pictures/s for `7b`, 53 and 16 for `17b`" in (ROOT / "infra/bench/README.md").read_text()


@pytest.mark.parametrize("merge", [1, 2])
def test_the_bounds_count_the_operations_and_weights_that_the_model_has(merge: int):
    tower = Tower(layers=2, width=64, heads=2, mlp=256, side=64, patch=8, merge=merge)
    shape = Vlm(tower, Decoder(layers=3, width=128, heads=4, kv_heads=2, mlp=384, vocabulary=512), (1,), prompt=6)
    model = random_vlm(shape, torch.device("cpu"))
    model.set_attn_implementation("eager")  # which torch counts
    ids = torch.tensor([[4] * tower.visual_tokens + [5] * shape.prompt])
    picture = torch.randn(1, 3, 64, 64)
    with torch.inference_mode(), FlopCounterMode(display=False) as counted:
        model(input_ids=ids, pixel_values=picture, logits_to_keep=1)
    masked = 2 * 3 * shape.context**2 * 128  # the half of the decoder's attention that a causal mask leaves out
    assert shape.prefill_flops() == pytest.approx(counted.get_total_flops() - masked, rel=0.01)
    weights = sum(parameter.numel() for parameter in model.parameters())
    assert shape.weight_bytes == pytest.approx(2 * weights, rel=0.05)
