"""Pairmill in Python: what `import pairmill` opens, runs and iterates agrees with SQL and with the files' bytes."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

import numpy as np
import pytest
import yaml
from torch.utils.data import DataLoader

import pairmill as pm
from pairmill.flows.api.training_pairs import TrainingPairs


@pytest.fixture(scope="module")
def lake(curated: Path) -> Iterator[pm.OpenLake]:
    with pm.open(curated) as opened:
        yield opened


def test_sql_gives_a_relation_and_refuses_what_changes(lake: pm.OpenLake):
    relation = lake.sql("SELECT image_id, text1 FROM pairs ORDER BY image_id")
    assert relation.columns == ["image_id", "text1"]
    assert len(relation.df()) == len(lake.dataset("demo")) == len(relation.fetchall())
    for refused in ("DELETE FROM pairs", "SELEC 1", "-- nothing", "LOAD httpfs"):
        with pytest.raises(pm.PairmillError):
            lake.sql(refused)


def test_a_notebook_shows_versions_and_pictures_with_their_texts(lake: pm.OpenLake):
    assert "<td>demo@1</td>" in lake._repr_html_()
    dataset = lake.dataset("demo")
    drawn, first = dataset._repr_html_(), next(dataset.pairs())
    assert drawn.count('<img src="data:image/webp;base64,') == 5
    assert f"<b>text1</b> {escape(first.texts['text1'])}" in drawn


def test_every_pair_has_the_bytes_that_its_id_is_the_hash_of(lake: pm.OpenLake):
    dataset = lake.dataset("demo@1")
    pairs = list(dataset.pairs())
    assert sorted(pair.image_id for pair in pairs) == dataset.arrow()["image_id"].to_pylist()
    assert dataset.columns == dataset.arrow().column_names
    for pair in pairs:
        assert hashlib.sha256(pair.data).hexdigest()[:32] == pair.columns["sha256"]
        assert pair.texts and pair.image.mode == "RGB"
        assert sorted(pair.image.size) == sorted((pair.columns["width"], pair.columns["height"]))


def test_a_dataset_knows_its_recipe_and_what_each_rule_dropped(lake: pm.OpenLake):
    dataset = lake.dataset("demo")
    assert dataset.recipe.name == "demo" and [str(each) for each in lake.datasets()] == ["demo@1"]
    images = [step for step in dataset.funnel() if step.kind == "image"]
    assert images[-1].n_in - images[-1].n_dropped == len(dataset)
    with pytest.raises(pm.PairmillError, match=r"has no version 9; its newest is demo@1"):
        lake.dataset("demo@9")


def test_vectors_come_in_the_order_of_the_ids_and_are_of_unit_length(lake: pm.OpenLake):
    dataset = lake.dataset("demo")
    ids = [row[0] for row in lake.sql("SELECT image_id FROM pairs ORDER BY image_id DESC LIMIT 7").fetchall()]
    found = dataset.vectors(ids)
    assert found.dtype == np.float32 and np.allclose((found**2).sum(1), 1, atol=1e-3)
    assert np.array_equal(found[::-1], dataset.vectors(ids[::-1])) and dataset.vectors([]).shape == (0, 0)
    with pytest.raises(pm.PairmillError, match="knows no image 'absent'"):
        dataset.vectors(["absent"])


def test_why_explains_an_image_a_sentence_and_a_document(lake: pm.OpenLake):
    image, text, page = lake.sql(
        "SELECT image_id, text1, uri FROM pairs JOIN documents USING (document_id) ORDER BY ALL LIMIT 1"
    ).fetchall()[0]
    assert lake.why(image)["decision"]["dataset"] == "demo@1"
    assert lake.why(text, "demo@1")["origin"]["text"] == text
    assert lake.why(page)["images"]
    with pytest.raises(pm.PairmillError, match="knows no 'nothing'"):
        lake.why("nothing")


@pytest.mark.slow
def test_a_recut_equals_the_run_with_the_same_change_and_loads_no_model(
    curated_copy: Path, pages: Path, settings: dict[str, str], tmp_path: Path
):
    script = tmp_path / "recut.py"
    script.write_text(
        f"""
import sys
import pairmill as pm

with pm.open({str(curated_copy)!r}) as lake:
    before = lake.snapshot
    cut = lake.recut("demo@1", {{"balance.cap": 2}})
    print(cut, cut.version.content_digest, before, len(cut))
print(sorted({{"torch", "ray", "prefect"}} & set(sys.modules)))
"""
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cut, modules = done.stdout.splitlines()
    name, digest, before, pairs = cut.split()
    assert (name, modules) == ("demo@2", "[]")
    recipe = pm.recipe("demo").with_({key: yaml.safe_load(value) for key, value in settings.items()})
    run = pm.run(recipe.with_({"balance.cap": 2}), pages, curated_copy)
    assert (run.is_new, run.dataset.version.content_digest, str(run.dataset)) == (False, digest, name)
    with pm.open(curated_copy, version=int(before)) as then, pm.open(curated_copy) as now:
        assert [str(each) for each in then.datasets()] == ["demo@1"] and then.snapshot == int(before)
        assert int(pairs) < len(now.dataset("demo@1")) == len(then.dataset("demo"))
    with pytest.raises(pm.PairmillError, match="has no snapshot 9999; it has"):
        pm.open(curated_copy, version=9999)


def test_a_recut_refuses_what_only_a_run_can_do(curated_copy: Path):
    with pm.open(curated_copy) as lake:
        with pytest.raises(pm.PairmillError, match=r"'clip\.precision' is no setting of the cut .*pairmill run demo"):
            lake.recut("demo", {"clip.precision": "bf16"})
        with pytest.raises(pm.PairmillError, match=r"that the rules let through have no image_\w+ yet"):
            lake.recut("demo", {"images": []})
        with pytest.raises(pm.PairmillError, match="the threshold of rule 'length' is not measured yet"):
            lake.recut("demo", {"sentences.length": {"name": "length", "keep": "n_words >= {threshold}",
                                                     "calibrate": {"drop": 0.1}}})  # fmt: skip
        assert [str(each) for each in lake.datasets()] == ["demo@1"]


def test_a_lake_exports_a_version(curated_copy: Path, tmp_path: Path):
    with pm.open(curated_copy) as opened:
        done = opened.export("demo@1", str(tmp_path / "out"), "texts")
        assert done.rows == len(opened.dataset("demo@1")) and (tmp_path / "out/.manifest.json").exists()


def ids_of(loader: "DataLoader[dict] | TrainingPairs") -> list[str]:
    return [sample["image_id"] for sample in loader]


def alone(samples: list[dict]) -> dict:
    return samples[0]


def test_training_gets_each_pair_once_an_epoch_with_workers_and_without(lake: pm.OpenLake):
    pairs = lake.dataset("demo").torch(seed=3, transform=np.asarray)
    every = lake.dataset("demo").arrow()["image_id"].to_pylist()
    first = ids_of(pairs)
    assert sorted(first) == every and len(pairs) == len(every)
    assert ids_of(pairs) == first, "the same epoch has the same order"
    pairs.set_epoch(1)
    assert sorted(second := ids_of(pairs)) == every and second != first
    # Not forked from this process: a test run has threads, whose locks a forked child would find held.
    loader: DataLoader[dict] = DataLoader(
        pairs, num_workers=2, collate_fn=alone, persistent_workers=True, multiprocessing_context="forkserver"
    )
    one = ids_of(loader)
    pairs.set_epoch(2)
    assert sorted(one) == sorted(two := ids_of(loader)) == every and one != two


def test_training_goes_on_where_its_state_was_taken(lake: pm.OpenLake):
    dataset = lake.dataset("demo")
    whole = [(sample["image_id"], sample["text"]) for sample in dataset.torch(seed=4)]
    begun = dataset.torch(seed=4)
    used = iter(begun)
    seen = [next(used)["image_id"] for _ in range(5)]
    resumed = dataset.torch(seed=4)
    resumed.load_state_dict(begun.state_dict())
    assert seen == [image for image, _ in whole[:5]]
    assert [(sample["image_id"], sample["text"]) for sample in resumed] == whole[5:]
    assert len(ids_of(resumed)) == len(whole), "the next epoch begins at its first pair"


def test_ranks_share_an_epoch(lake: pm.OpenLake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    by_rank = []
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        by_rank.append(ids_of(lake.dataset("demo").torch(text="text1")))
    assert len(by_rank[0]) == len(by_rank[1]) == len(lake.dataset("demo")) // 2
    assert not set(by_rank[0]) & set(by_rank[1])


def test_the_text_is_of_the_columns_asked_for(lake: pm.OpenLake):
    dataset = lake.dataset("demo")
    rows = {row["image_id"]: row for row in dataset.arrow().to_pylist()}
    for sample in dataset.torch(text="caption"):
        row = rows[sample["image_id"]]
        assert sample["text"] == (row["caption"] or row["text1"])
    drawn = [sample["text"] for sample in dataset.torch(text=("text1", "text2"))]
    assert {*drawn} <= {row[name] for row in rows.values() for name in ("text1", "text2")}
    with pytest.raises(pm.PairmillError, match="no text 'title'; name of text1"):
        dataset.torch(text="title")


def test_a_recipe_is_changed_by_dotted_keys_and_validated():
    recipe = pm.recipe("demo").with_({"balance.cap": 7, "seed": 5})
    assert (recipe.balance.cap, recipe.seed) == (7, 5)
    with pytest.raises(pm.PairmillError, match=r"balance\.cap"):
        recipe.with_({"balance.cap": "many"})


@pytest.mark.slow
def test_a_script_without_a_main_guard_runs_a_recipe_and_its_second_run_does_nothing(
    curated_copy: Path, pages: Path, settings: dict[str, str], tmp_path: Path
):
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import pairmill as pm

changes = {dict(settings)!r} | {{"balance.cap": "19"}}
recipe = pm.recipe("demo").with_({{key: pm_value(value) for key, value in changes.items()}})
for _ in range(2):
    found = pm.run(recipe, {str(pages)!r}, {str(curated_copy)!r}, pm.Compute(workers=2))
    print(found.is_new, found.dataset, len(found.dataset))
""".replace("pm_value(value)", "__import__('yaml').safe_load(value)")
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("True demo@2 ") and second == first.replace("True", "False")
