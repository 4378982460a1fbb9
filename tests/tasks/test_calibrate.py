"""A rule that is to drop a share gets its number in the run, keeps it, and every version has it on record."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.recipe.recipe import Recipe, validate
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.write import lease
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute
from pairmill.flows.run.survey import survey
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.measure import calibrate as steps
from pairmill.tasks.measure.calibrate import calibrate_late
from pairmill.tasks.measure.entropy import score_entropy
from pairmill.tasks.measure.score_contents import score_sentences
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.session import Session
from tests.worlds.published import IMAGE_RULES, insert_fused, published
from tests.worlds.published import plan_of as given_plan
from tests.worlds.shared import made_once, new_lake
from tests.worlds.tiny import save_clip

LENGTH = {"name": "length", "keep": "n_words >= {threshold}", "calibrate": {"drop": 0.3}}
ENTROPY = {"name": "easy", "keep": "corpus_entropy >= {threshold}", "calibrate": {"drop": 0.5}}
WORDS = ["the", "old", "red", "engine", "waits", "beside", "the", "wide", "station", "for", "its", "crew"]


def sentence(n: int) -> str:
    return f"Number{n} {' '.join(WORDS[: 1 + n % 10])}."


def pages(folder: Path, numbers: range) -> Path:
    folder.mkdir(exist_ok=True)
    for n in numbers:
        (folder / f"{n:03}.html").write_text(f"<html><body><article><p>{sentence(n)}</p></article></body></html>")
    return folder


def recipe(*rules: dict, **more: object) -> Recipe:
    models = {"clip": f"open_clip:local-dir:{made_once('calibrated-clip', save_clip)}"}
    content = {"name": "small", "models": models, "sentences": list(rules), "ingest": {"documents_per_shard": 4}}
    return validate(content | more, "small")


def run(lake: Path, source: Path, asked: Recipe, before: Callable[[Session], object] = ingest):
    """Ingest and score sentences; return the session, and what the lake holds: texts embedded, rows of thresholds."""
    with session(asked, [str(source)], str(new_lake(lake)), Compute(workers=1)) as held:  # pyright: ignore[reportCallIssue]
        before(held)
        score_entropy(held)
        score_sentences(held)
        steps.calibrate(held, Stage.ASSOCIATE, ["sentence"])
        embedded = "SELECT DISTINCT c.text FROM sentence_embedding JOIN sentence_content c USING (content) ORDER BY ALL"
        frozen = 'SELECT rule, "drop", threshold, n, n_dropped FROM thresholds ORDER BY "commit"'
        return held, [text for (text,) in held.lake.query(embedded)], held.lake.query(frozen)


def keep_of(held: Session, name: str) -> str:
    return next(check.keep for check in held.plan.sentence_checks if check.name == name)


@pytest.mark.slow
def test_a_sentence_rule_bites_at_once_and_keeps_its_number_as_the_lake_grows(tmp_path: Path):
    lake, source = tmp_path / "lake", pages(tmp_path / "pages", range(20))  # 2 to 11 words, two sentences of each
    held, embedded, frozen = run(lake, source, recipe(LENGTH))
    assert frozen == [("(n_words >= CAST(NULL AS DOUBLE))", 0.3, 5.0, 20, 6)]
    assert keep_of(held, "length") == "(n_words >= 5.0)"
    assert embedded == sorted(sentence(n) for n in range(20) if n % 10 >= 3)
    (note,) = held.notes
    assert "'length' was set: `(n_words >= 5.0)` drops 6 of 20 sentences, 30.0% where 30.0% was asked for" in note

    pages(source, range(20, 60, 10))  # the shortest: their share is now a quarter more
    held, embedded, again = run(lake, source, recipe(LENGTH))
    assert again == frozen and held.notes == [] and keep_of(held, "length") == "(n_words >= 5.0)"
    assert embedded == sorted(sentence(n) for n in range(20) if n % 10 >= 3)

    held, _, other = run(lake, source, recipe(LENGTH | {"calibrate": {"drop": 0.5}}))
    assert other[:1] == frozen and other[1][1] == 0.5 and other[1][3] == 24


def test_rules_are_set_in_order_each_over_what_the_one_before_leaves(tmp_path: Path):
    long = {"name": "long", "keep": "n_words <= {threshold}", "calibrate": {"drop": 0.5}}
    source = pages(tmp_path / "pages", range(20))
    held, embedded, frozen = run(tmp_path / "lake", source, recipe(LENGTH, long))
    assert [row[2:] for row in frozen] == [(5.0, 20, 6), (8.0, 14, 6)]  # 5 to 11 words: 9, 10, 11 are at most half
    assert embedded == sorted(sentence(n) for n in range(20) if 3 <= n % 10 <= 6)
    assert len(held.notes) == 2


@pytest.mark.slow
def test_words_counted_anew_give_another_number_and_the_run_says_so(tmp_path: Path):
    lake, source = tmp_path / "lake", pages(tmp_path / "pages", range(20))
    _, embedded, frozen = run(lake, source, recipe(ENTROPY))
    values = dict(held_entropies(lake))
    assert frozen[0][3:] == (20, 10) and frozen[0][2] == np.sort(list(values.values()))[10]
    assert embedded == sorted(text for text, value in values.items() if value >= frozen[0][2])
    held, _, other = run(lake, pages(source, range(20, 60)), recipe(ENTROPY))  # more than `words.refresh_at` times
    assert len(other) == 2 and other[0] == frozen[0] and other[1][2] != frozen[0][2] and other[1][3] == 60
    (note,) = (each for each in held.notes if "easy" in each)
    assert f"was set anew, because its score is another (it was {frozen[0][2]:.9g})" in note


def held_entropies(lake: Path) -> list[tuple]:
    with create_or_open(lake, read_only=True) as opened:
        return opened.query("SELECT text, corpus_entropy FROM corpus_entropy JOIN sentence_content USING (content)")


@pytest.mark.slow
def test_a_survey_sets_nothing_and_a_run_that_goes_on_gets_the_same_number(tmp_path: Path, monkeypatch):
    """Killed between scoring and the commit of the number, and after it."""
    lake, source, asked = tmp_path / "lake", pages(tmp_path / "pages", range(20)), recipe(LENGTH)
    freeze = steps._freeze
    for dies_after in (False, True):

        def dying(held: Session, kind: str, check, found, dies_after: bool = dies_after) -> None:
            if dies_after:
                freeze(held, kind, check, found)
            raise KeyboardInterrupt

        monkeypatch.setattr(steps, "_freeze", dying)
        with pytest.raises(KeyboardInterrupt):
            run(lake, source, asked)
        if not dies_after:
            with create_or_open(lake, read_only=True) as opened:
                held = survey(opened, compile_plan(asked, scorers_of(opened)), ())
                pending = [(each.work, each.rows) for each in held.found if each.rows]
                assert pending == [("calibrate length", 20), ("embed sentences", 14)]
                assert opened.query("FROM thresholds") == []
    monkeypatch.undo()
    _, embedded, frozen = run(lake, source, asked)
    undisturbed = run(tmp_path / "other", source, asked)
    assert (embedded, frozen) == undisturbed[1:]


def scorers_of(lake) -> dict[str, str]:
    return dict(lake.query("SELECT DISTINCT \"table\", scorer FROM partitions WHERE scorer <> ''"))


def test_where_nothing_has_a_value_nothing_is_set_and_nothing_passes(tmp_path: Path):
    first = {"name": "none", "keep": "n_words > 1000"}
    held, embedded, frozen = run(tmp_path / "lake", pages(tmp_path / "pages", range(4)), recipe(first, LENGTH))
    assert (embedded, frozen) == ([], [])
    assert keep_of(held, "length") == "(n_words >= CAST(NULL AS DOUBLE))"


@pytest.mark.slow
def test_an_image_rule_and_one_on_fused_texts_drop_their_share_of_what_reaches_them(tmp_path: Path):
    rules = [*IMAGE_RULES, {"name": "sharp", "keep": "sharpness >= {threshold}", "calibrate": {"drop": 0.25}},
             {"name": "short", "keep": "synthetic_tokens <= {threshold}", "calibrate": {"drop": 0.34}}]  # fmt: skip
    published(tmp_path / "lake", cap=100)
    base, _ = given_plan(100, IMAGE_RULES, captions=True, tags=True)
    content = base.recipe.model_dump() | {"images": rules, "fuse": {}}
    plan = compile_plan(validate(content, "small"), {**base.scorers, "synthetic": "fused"})
    with create_or_open(tmp_path / "lake") as lake, lease.writing(lake, "run", "test") as writer:
        held = Session(writer, plan, Placement())
        steps.calibrate(held, Stage.CAPTION, ["image"])
        reached = [3.5 * m for shard in range(3) for m, n in enumerate(range(shard, 12, 3)) if 30 + 10 * n >= 40]
        assert held.plan.image_checks[2].keep == f"(sharpness >= {sorted(reached)[len(reached) // 4]})"
        kept = insert_fused(lake, held.plan, synthetic_status=["ok"] * 99, n_tokens=pa.array(range(99), pa.int32()))
        n = len(kept)
        cut(lake, replace(held.plan, image_checks=held.plan.image_checks[:-1]))
        calibrate_late(held)
        cut(lake, held.plan)
        fallen = lake.query("SELECT sha256 FROM cut_images WHERE dropped_by = 'short' ORDER BY ALL")
        assert [sha for (sha,) in fallen] == kept[n - int(0.34 * n) :] and fallen
        assert lake.query("SELECT kind, n, n_dropped FROM thresholds ORDER BY \"commit\"") == [
            ("image", len(reached), len(reached) // 4), ("image", n, int(0.34 * n))]  # fmt: skip
