"""`pairmill prove`: the table, its controls, what is stored, and what is refused."""

import json
import math
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import pairmill as pm
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import text_id
from pairmill.flows.command.cli import main
from pairmill.flows.prove import prove
from pairmill.ops.models.model_digest import model_digest
from pairmill.ops.whole import cut_trials
from tests.worlds.commands import Tell
from tests.worlds.line import curate, rows
from tests.worlds.packed import sample, tar
from tests.worlds.planted_pairs import lake_of_planted_pairs
from tests.worlds.published import picture
from tests.worlds.tiny import save_clip

CLIP = Path(__file__).resolve().parents[2] / "infra/demo/models/clip"


@pytest.fixture
def judge(tmp_path: Path) -> str:
    return save_clip(tmp_path / "judge")


def made(tmp_path: Path, judge: str, n: int = 400) -> tuple[Path, Path]:
    """Make a lake with `cut@1`; return it, and a file of the pictures whose pairs are right."""
    recipe = Recipe.model_validate({"name": "cut", "models": {"clip": judge}})
    lake, is_right = lake_of_planted_pairs(tmp_path / "lake", recipe, n)
    lake.close()
    right = [text_id(str(k)) for k in range(n) if is_right[k]]
    pq.write_table(pa.table({"sha256": right}), tmp_path / "right.parquet")
    return tmp_path / "lake", tmp_path / "right.parquet"


@pytest.mark.slow
def test_a_proof_shows_its_controls_is_stored_and_stands_in_report_and_card(
    tmp_path: Path, judge: str, tell: Tell, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cut_trials, "SAMPLES", (20, 16_000, 16_000))
    lake, right = made(tmp_path, judge)
    told = tell("prove", "cut@1", "--judge", judge, "--right", str(right), "--lake", str(lake), "--format", "json")
    (proof,) = json.loads(told[told.index("[") :])
    of = {(line["arm"], line["held_out"]): line for line in proof["lines"]}
    assert {arm for arm, _ in of} == {"raw", "random", "cut@1", "oracle"}
    unseen = {arm: of[arm, "unseen"]["recall"] for arm in ("random", "cut@1", "oracle")}
    assert unseen["oracle"] > unseen["cut@1"] > unseen["random"]
    assert of["oracle", "unseen"]["verdict"] == "better" and of["raw", "unseen"]["verdict"] == ""
    assert of["random", "unseen"]["pairs"] == of["cut@1", "unseen"]["pairs"] < proof["pool"] == 400
    with pm.open(lake) as opened:
        (stored,) = opened.proofs("cut@1")
        assert [line.verdict for line in stored.lines] == [line["verdict"] for line in proof["lines"]]
        assert opened.report_content("cut@1")["proofs"] == [stored]
    assert rows(lake, "SELECT count(*) FROM judge_text") == [(400,)]  # what stood there was not embedded again


@pytest.mark.slow
def test_rules_are_priced_by_the_pictures_that_they_drop(tmp_path: Path, judge: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cut_trials, "SAMPLES", (0, 3_000, 3_000))
    folder, _ = made(tmp_path, judge)
    with create_or_open(folder) as lake:
        rule = {"name": "sharp", "keep": "sharpness > 9"}
        own = Recipe.model_validate({"name": "cut", "models": {"clip": judge}, "images": [rule]})
        lake.execute("UPDATE datasets SET recipe = ?", (own.model_dump_json(),))
        lake.execute("""INSERT INTO funnel BY NAME SELECT 'cut' AS dataset, 1 AS version, 'image' AS kind, rule,
            position FROM (VALUES ('idle', 0), ('sharp', 1)) t(rule, position)""")
        lake.execute("UPDATE decisions SET failed = 2 WHERE item_id < '8'")
        (proof,) = prove(lake, ["cut@1"], judge, rules=True)
    (price,) = (line for line in proof.lines if line.arm.startswith("rule "))
    assert price.arm == "rule sharp" and price.pairs == sum(text_id(str(k)) >= "8" for k in range(400))
    assert price.recall is None and price.difference is not None and price.half


def test_what_cannot_be_proved_is_refused_in_one_line(tmp_path: Path, judge: str):
    lake, _ = made(tmp_path, judge, 100)

    with create_or_open(lake) as writable:

        def refused(seeds: int = 8) -> str:
            with pytest.raises(PairmillError) as found:
                prove(writable, ["cut@1"], judge, seeds)
            assert "\n" not in str(found.value)
            return str(found.value)

        assert "an interval over so few is too wide to tell; give 8 or more" in refused(1)
        writable.execute("UPDATE image_embedding SET image_vector = NULL")
        assert "has no vector of a picture with a text" in refused()
        writable.execute("UPDATE pairs SET text1 = NULL")
        assert "cut@1 has 0 pairs with a text; a proof needs 40 at the least" in refused()
        writable.execute(
            "INSERT INTO scorers (digest, name, model) VALUES ('own', 'image_embedding', ?)", (model_digest(judge),)
        )
        writable.execute("UPDATE datasets SET scorers = ['own']")
        assert "is the filter's own: it made the scores 'image_embedding' of cut@1" in refused()


@pytest.mark.slow  # 12 CPU s
def test_a_pool_of_datacomp_becomes_shards_on_which_open_clips_trainer_takes_20_steps(tmp_path: Path, tell: Tell):
    (tmp_path / "pool").mkdir()
    samples = [sample(f"{n:09}", picture(n), f"Picture number {n}.", uid=f"{n:032x}") for n in range(12)]
    (tmp_path / "pool/00000000.tar").write_bytes(tar([file for each in samples for file in each]))
    curate(
        tmp_path / "lake", tmp_path / "pool", recipe="captions", settings={"captions.own": "keep", "captioners": "[]"}
    )
    told = tell("prove", "captions@1", "--datacomp", str(tmp_path / "dc"), "--lake", str(tmp_path / "lake"))
    folder = tmp_path / "dc/captions-1"
    assert told.splitlines()[-1] == f"GPUS=8 sh {folder}/train.sh"
    with tarfile.open(folder / "shards/captions-v1-000000.tar") as shard:
        texts = {shard.extractfile(name).read() for name in shard.getnames() if name.endswith(".txt")}  # pyright: ignore[reportOptionalMemberAccess]
    assert texts == {f"Picture number {n}.".encode() for n in range(12)}
    smaller = ["--model", f"local-dir:{CLIP}", "--precision", "fp32", "--train-num-samples", "160", "--epochs", "1",
               "--batch-size", "8", "--workers", "1", "--log-every-n-steps", "1"]  # fmt: skip
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["sh", str(folder / "train.sh"), *smaller]
    done = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    log = (folder / "runs/captions-1/out.log").read_text()
    losses = [float(loss) for loss in re.findall(r"Train Epoch: 0 .* Loss: (\S+)", log)]
    assert len(losses) == 20 and all(map(math.isfinite, losses))
    assert "lr: 0.0005" in log and "warmup: 500" in log
    kept = torch.load(folder / "runs/captions-1/checkpoints/epoch_latest.pt", weights_only=True)
    # The loss of one batch of 8 is noise (2.1 to 2.9) and falls by less in 20 steps of a warm-up of 500.
    assert {float(state["step"]) for state in kept["optimizer"]["state"].values()} == {20.0}
    assert all(bool(torch.isfinite(weight).all()) for weight in kept["state_dict"].values())


def test_a_proof_without_a_judge_and_without_a_folder_names_both(capsys: pytest.CaptureFixture[str]):
    assert main(["prove", "demo@1"]) != 0
    assert "give --judge, a CLIP that made none of the scores, or --datacomp, a folder" in capsys.readouterr().err
