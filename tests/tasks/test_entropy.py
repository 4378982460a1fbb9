"""Word probabilities of a lake: counted once, frozen, made anew when outgrown; entropies follow."""

from pathlib import Path

import pytest

from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.flows.run.survey import survey
from pairmill.ops.text.corpus_entropy import CorpusEntropy, count_words
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.measure.entropy import score_entropy
from tests.worlds.shared import new_lake

ENTROPY = {"scores.corpus_entropy": "{}", "ingest.documents_per_shard": "2"}
TEXTS = [
    "The cat sat on the mat. The dog sat too.",
    "The cat slept. Rain fell on the roof.",
    "Nothing. The cat sat on the mat.",
]


def pages(folder: Path, texts: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for n, text in enumerate(texts):
        page = f"<html><body><article><p>{text}</p></article></body></html>"
        if not (folder / f"{n:03}.html").exists():
            (folder / f"{n:03}.html").write_text(page)
    return folder


def run(lake: Path, source: Path, **settings: str):
    """Ingest and score; return the work items by step, the notes, and (text, entropy) in order."""
    recipe = load_recipe("demo", {**ENTROPY, **{name.replace("__", "."): value for name, value in settings.items()}})
    with session(recipe, [str(source)], str(new_lake(lake)), Compute(workers=1)) as opened:
        ingest(opened)
        pending = {each.work: each.rows for each in survey(opened.lake, opened.plan, ()).found}
        score_entropy(opened)
        scorer = opened.plan.scorer("corpus_entropy")
        found = opened.lake.query(
            "SELECT c.text, e.corpus_entropy FROM corpus_entropy e JOIN sentence_content c USING (content) "
            "WHERE e.scorer = ? ORDER BY c.text", (scorer,))  # fmt: skip
        return dict(opened.counts), pending, list(opened.notes), dict(found), dict(opened.plan.scorers)


def expected(texts: list[str], corpus: list[str]) -> dict[str, float]:
    counts = count_words(corpus)
    shares = {word: n / counts.total() for word, n in counts.items()}
    return dict(zip(texts, CorpusEntropy(shares)({"text": texts})["corpus_entropy"], strict=True))


def sentences(texts: list[str]) -> list[str]:
    return [part.strip().rstrip(".") + "." for text in texts for part in text.split(". ")]


@pytest.mark.slow
def test_probabilities_count_every_occurrence_are_frozen_and_made_anew_when_outgrown(tmp_path: Path):
    source, lake = pages(tmp_path / "pages", TEXTS), tmp_path / "lake"
    corpus = sentences(TEXTS)
    counts, pending, notes, found, used = run(lake, source)
    assert found == expected(sorted(set(corpus)), corpus)
    assert (counts["count words"], counts["train word probabilities"]) == (2, 1)
    assert pending["count words"] == 2
    assert not notes

    again = run(lake, source)
    assert again[3] == found
    assert again[4] == used, "a version of the second run would name other scorers, and so be another"
    assert "count words" not in again[0]
    assert not any(rows for work, rows in again[1].items() if work.startswith(("count", "train")))

    pages(source, [*TEXTS, "A bird sang."])  # 6 distinct sentences of 5: within twice
    grown = run(lake, source)
    assert "train word probabilities" not in grown[0]
    assert grown[3] == expected(sorted({*corpus, "A bird sang."}), corpus)

    more = [*TEXTS, "A bird sang.", *(f"The owl number {n} sat." for n in range(6))]
    pages(source, more)
    anew = run(lake, source)
    assert anew[3] == expected(sorted(set(sentences(more))), sentences(more))
    assert any("12 sentences" in note for note in anew[2])


def test_a_recipe_that_does_not_ask_counts_nothing(tmp_path: Path):
    recipe = load_recipe("demo", {"sentences.entropy.keep": "text_entropy >= 1"})
    with session(
        recipe, [str(pages(tmp_path / "p", TEXTS))], str(new_lake(tmp_path / "l")), Compute(workers=1)
    ) as opened:
        ingest(opened)
        score_entropy(opened)
        assert not opened.lake.query("FROM word_counts")
