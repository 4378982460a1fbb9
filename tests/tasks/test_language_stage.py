"""A language model's score stands between the cheap flags and CLIP: each sees what the rules before it let pass."""

from pathlib import Path

import numpy as np
import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import validate
from pairmill.catalog.write import lease
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.models.language.perplexity import Perplexity
from pairmill.tasks.measure.score_contents import score_sentences
from pairmill.tasks.run.place.identity import with_scorers
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.session import Session
from tests.worlds.published import published
from tests.worlds.tiny import save_clip
from tests.worlds.tiny_language import save_language_model

LONG = ("the old red engine waits", "the crew of the old engine", "a cat beside the station", "call for the next fire",
        "one two three four five", "five , four , three")  # fmt: skip
SHORT = ("a cat", "cat")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    return {"clip": save_clip(folder / "clip"), "perplexity": save_language_model(folder / "language")}


def planned(models: dict[str, str], low: float, high: float, **scores: object) -> tuple[Plan, list[Scorer]]:
    rules = {"fluent": f"perplexity between {low} and {high}", "length": "n_words >= 3"}
    sentences = [{"name": name, "keep": keep} for name, keep in rules.items()]
    return with_scorers(
        compile_plan(validate({"name": "small", "models": models, "sentences": sentences, "scores": scores}, "small"))
    )


def run(lake_folder: Path, run_id: str, asked: tuple[Plan, list[Scorer]]) -> dict[str, int]:
    with create_or_open(lake_folder) as lake, lease.writing(lake, run_id, "test") as writer:
        session = Session(writer, asked[0], Placement(workers=1))
        session.register_later(asked[1])
        score_sentences(session)
        return session.counts


@pytest.mark.slow
def test_what_a_language_models_rule_drops_is_never_embedded(tmp_path: Path, models: dict[str, str]):
    published(tmp_path / "lake", sentences=LONG + SHORT)
    values = np.round(Perplexity(models["perplexity"])({"text": list(LONG)})["perplexity"], 4)
    ranked = np.sort(values)
    low, high = (
        (ranked[0] + ranked[1]) / 2,
        (ranked[3] + ranked[4]) / 2,
    )  # a worker has one thread: the last digit moves
    asked = planned(models, low, high)
    first = run(tmp_path / "lake", "run-2", asked)
    assert first == {"score sentences": 1, "score perplexity": 1, "embed sentences": 1}
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        scored = dict(lake.query("SELECT text, perplexity FROM perplexity JOIN sentence_content USING (content)"))
        embedded = {
            text for (text,) in lake.query(
                "SELECT text FROM sentence_embedding e JOIN sentence_content USING (content) WHERE e.scorer = ?",
                (asked[0].scorer("sentence_embedding"),),
            )
        }  # fmt: skip
    assert scored == pytest.approx(dict(zip(LONG, values.tolist(), strict=True)), rel=1e-4)  # short ones cost nothing
    assert embedded == {text for text, value in scored.items() if low <= value <= high} and len(embedded) == 3

    assert not any(run(tmp_path / "lake", "run-3", planned(models, low, high)).values())  # nothing is done twice
    wider = run(tmp_path / "lake", "run-4", planned(models, 1, 10**9))
    assert wider == {"score sentences": 0, "score perplexity": 0, "embed sentences": 1}


def test_precision_and_weights_are_identity_and_the_size_of_a_batch_is_not(tmp_path: Path, models: dict[str, str]):
    def digest(spec: str = models["perplexity"], **settings: object) -> str:
        return planned(models | {"perplexity": spec}, 1, 9, perplexity=settings)[0].scorer("perplexity")

    moved = Path(models["perplexity"].removeprefix("hf:")).rename(tmp_path / "moved")
    same = digest(f"hf:{moved}")
    moved.rename(models["perplexity"].removeprefix("hf:"))
    assert digest() == same == digest(batch_size=3) == digest(precision="fp32")
    other = save_language_model(tmp_path / "other", context=65)
    assert len({digest(), digest(precision="bf16"), digest(other)}) == 3
