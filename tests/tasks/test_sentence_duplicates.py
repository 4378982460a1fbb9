"""Sentences that are near-equal, by string or by vector, are joined into groups; new ones meet those before them."""

import random
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from pairmill.catalog.pending import duplicate_edges
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.flows.run.survey import survey
from pairmill.ops.text.split import normalise
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.measure.score_contents import score_sentences
from pairmill.tasks.relate.cluster import cluster
from pairmill.tasks.relate.duplicates import group_sentences
from pairmill.tasks.run.items.rows import to_vectors
from pairmill.tasks.run.session import Session
from tests.reference.components import walk
from tests.reference.near_strings import all_pairs
from tests.worlds.generated import small_settings
from tests.worlds.shared import copied, new_lake

Pair = tuple[str, str]
JACCARD, COSINE = 0.8, 0.9
WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "lagoon",
         "marsh", "north", "orchard", "prairie")  # fmt: skip


def varied(rng: random.Random, n: int) -> list[str]:
    """Sentences of 6 to 12 words, half of them copies of others with a word or a letter changed, or a word more."""
    made = [" ".join(rng.choices(WORDS, k=rng.randint(6, 12))) for _ in range(n // 2)]
    for _ in range(n - len(made)):
        words = rng.choice(made).split()
        at = rng.randrange(len(words))
        words[at] = rng.choice((rng.choice(WORDS), words[at][:-1], words[at] + " " + rng.choice(WORDS)))
        made.append(" ".join(words))
    return [f"{text.capitalize()}." for text in made]


def write(folder: Path, texts: list[str]) -> Path:
    folder.mkdir(parents=True)
    for n in range(0, len(texts), 10):
        paragraphs = "".join(f"<p>{text}</p>" for text in texts[n : n + 10])
        (folder / f"{n:04}.html").write_text(f"<html><body><article>{paragraphs}</article></body></html>")
    return folder


@dataclass
class Found:
    """What is stored after a run, by normalised text: edges by kind, groups, and each sentence's cluster and vector."""

    perceptual: set[Pair]
    semantic: set[Pair]
    groups: set[frozenset[str]]
    places: dict[str, tuple[int, np.ndarray]]
    foretold: dict[str, int]
    counts: dict[str, int]
    notes: list[str]


def run(lake: Path, *sources: Path, **section: float) -> Found:
    """Ingest, score, cluster, survey what is left, and group."""
    asked = ", ".join(f"{name}: {value}" for name, value in ({"jaccard": JACCARD, "cosine": COSINE} | section).items())
    rules = {"sentences": "[]", "sentence_duplicates": f"{{{asked}}}", "association.retrain_at": "100"}
    recipe = load_recipe("demo", small_settings() | {"ingest.documents_per_shard": "9"} | rules)
    with session(recipe, [str(source) for source in sources], str(new_lake(lake)), Compute(workers=1)) as opened:  # pyright: ignore[reportCallIssue]
        for step in (ingest, score_sentences, cluster):
            step(opened)
        foretold = {each.work: each.items for each in survey(opened.lake, opened.plan, ()).found if each.items}
        opened.counts.clear()
        group_sentences(opened)
        return Found(
            _edges(opened, "perceptual"), _edges(opened, "semantic"), _groups(opened), _places(opened), foretold,
            {step: n for step, n in opened.counts.items() if n}, list(opened.notes),
        )  # fmt: skip


def _texts(opened: Session) -> dict[str, str]:
    return {key: normalise(said) for key, said in opened.lake.query("SELECT content, text FROM sentence_content")}


def _edges(opened: Session, kind: str) -> set[Pair]:
    text, scorer = _texts(opened), opened.plan.scorer(f"sentence_{kind}_edges")
    rows = opened.lake.query("SELECT a, b FROM sentence_edges WHERE a IS NOT NULL AND scorer = ?", (scorer,))
    return {(min(text[a], text[b]), max(text[a], text[b])) for a, b in rows}


def _groups(opened: Session) -> set[frozenset[str]]:
    text, scorer = _texts(opened), opened.plan.scorer("sentence_groups")
    rows = opened.lake.query("SELECT content, group_id, group_size FROM sentence_groups WHERE scorer = $1 AND commit = "
                             "(SELECT max(commit) FROM sentence_groups WHERE scorer = $1)", (scorer,))  # fmt: skip
    groups: dict[str, set[str]] = {}
    for content, group, _ in rows:
        groups.setdefault(group, set()).add(content)
    assert all(group == min(members) for group, members in groups.items())
    assert all(size == len(groups[group]) for _, group, size in rows)
    return {frozenset(text[content] for content in members) for members in groups.values()}


def _places(opened: Session) -> dict[str, tuple[int, np.ndarray]]:
    text = _texts(opened)
    scorers = opened.plan.scorer("sentence_clusters"), opened.plan.scorer("sentence_embedding")
    rows = opened.lake.table("SELECT key, cluster, sentence_vector FROM clusters c JOIN sentence_embedding e "
                             "ON e.content = c.key AND c.scorer = ? AND e.scorer = ?", scorers)  # fmt: skip
    vectors = to_vectors(rows["sentence_vector"])
    keys, clusters = rows["key"].to_pylist(), rows["cluster"].to_pylist()
    return {text[key]: (cluster, vector) for key, cluster, vector in zip(keys, clusters, vectors, strict=True)}


def near_strings(texts: set[str], jaccard: float = JACCARD) -> set[Pair]:
    ordered = sorted(texts)
    return {(ordered[i], ordered[j]) for i, j in all_pairs(ordered, jaccard)}


def near_vectors(places: dict[str, tuple[int, np.ndarray]]) -> set[Pair]:
    """All pairs of one cluster, but for those whose cosine is the threshold's but for rounding."""
    return {
        (one, other)
        for one, other in combinations(sorted(places), 2)
        if places[one][0] == places[other][0] and places[one][1] @ places[other][1] >= COSINE
    }


def joined(edges: set[Pair]) -> set[frozenset[str]]:
    nodes = sorted({text for pair in edges for text in pair})
    number = {text: n for n, text in enumerate(nodes)}
    groups: dict[int, set[str]] = {}
    for text, label in zip(nodes, walk(len(nodes), [(number[a], number[b]) for a, b in edges]), strict=True):
        groups.setdefault(label, set()).add(text)
    return {frozenset(members) for members in groups.values()}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found]:
    """A folder with the pages of 200 sentences and the lake of a run over them, and what the run found."""
    place = tmp_path_factory.mktemp("first")
    return place, run(place / "lake", write(place / "pages", varied(random.Random(5), 200)))


@pytest.mark.slow
def test_edges_and_groups_are_those_of_the_slow_twins(first: tuple[Path, Found]):
    texts, found = varied(random.Random(5), 200), first[1]
    assert found.places.keys() == {normalise(text) for text in texts}
    assert found.perceptual == near_strings(set(found.places))
    assert found.semantic == near_vectors(found.places)
    assert len(found.perceptual) > 30 and found.semantic - found.perceptual and found.perceptual - found.semantic
    assert found.groups == joined(found.perceptual | found.semantic)


@pytest.mark.slow
def test_sorted_in_parts_and_blocks_they_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts = varied(random.Random(5), 80)
    monkeypatch.setattr(duplicate_edges, "AT_ONCE", 7)
    monkeypatch.setattr(duplicate_edges, "BLOCK", 5)
    monkeypatch.setattr(duplicate_edges, "PAIRS_AT_ONCE", 3)
    found = run(tmp_path / "lake", write(tmp_path / "pages", texts))
    assert len(found.perceptual) > 10 and found.perceptual == near_strings(set(found.places))


@pytest.mark.slow
def test_a_run_foretells_its_steps_and_the_next_does_nothing(first: tuple[Path, Found], tmp_path: Path):
    place, found = first
    assert found.foretold.items() >= found.counts.items()
    assert set(found.counts) == {
        "perceptual sentence duplicates", "semantic sentence duplicates", "group sentence duplicates"}  # fmt: skip
    again = run(copied(place / "lake", tmp_path / "lake"), place / "pages")
    assert again.counts == {} and again.groups == found.groups
    assert not set(again.foretold) & set(found.counts)


@pytest.mark.slow
def test_sentences_that_come_later_meet_those_before_them_and_each_other(tmp_path: Path):
    texts = varied(random.Random(7), 160)
    first, second = write(tmp_path / "a", texts[0::2]), write(tmp_path / "b", texts[1::2])
    before = run(tmp_path / "lake", first)
    after = run(tmp_path / "lake", first, second)
    old = set(before.places)
    assert any((a in old) != (b in old) for a, b in after.perceptual)
    assert any((a in old) != (b in old) for a, b in after.semantic)
    assert before.perceptual < after.perceptual == near_strings(set(after.places))
    assert after.semantic == near_vectors(after.places)
    assert after.groups == joined(after.perceptual | after.semantic)


@pytest.mark.slow
def test_a_higher_threshold_compares_strings_alone_again(first: tuple[Path, Found], tmp_path: Path):
    place, found = first
    higher = run(copied(place / "lake", tmp_path / "lake"), place / "pages", jaccard=0.9)
    assert set(higher.counts) == {"perceptual sentence duplicates", "group sentence duplicates"}
    assert higher.perceptual == near_strings(set(higher.places), 0.9) < found.perceptual
    assert higher.groups == joined(higher.perceptual | higher.semantic)


@pytest.mark.slow
def test_a_group_over_the_limit_is_cut_tighter_and_reported(tmp_path: Path):
    body = " ".join(WORDS)
    texts = [f"{body} {n:02}." for n in range(30)] + varied(random.Random(9), 20)
    found = run(tmp_path / "lake", write(tmp_path / "pages", texts), max_group=5, cosine=1.0)
    assert max(map(len, found.groups)) <= 5
    assert any("sentences" in note and "max_group" in note for note in found.notes)


@pytest.mark.slow
def test_more_copies_than_a_window_are_one_group(tmp_path: Path):
    texts = [f"{' '.join(WORDS * 3)} {n:03}." for n in range(4 * duplicate_edges.WINDOW)]
    found = run(tmp_path / "lake", write(tmp_path / "pages", texts), cosine=1.0)
    assert found.perceptual <= near_strings(set(found.places))
    assert found.groups == {frozenset(found.places)}


@pytest.mark.parametrize(("n", "expected"), [(0, 4), (99_999, 4), (1_000_000, 6), (10**8, 8), (10**10, 8)])
def test_more_bytes_must_agree_the_more_sentences_there_are(n: int, expected: int):
    assert duplicate_edges.leading_bytes(n) == expected


def test_sketches_of_near_copies_are_near_enough():
    """By 64 bits of which (1 - J) / 2 differ: 16 of 64 at a Jaccard similarity of 0.8, all but one in 30,000 pairs."""
    assert [duplicate_edges.furthest(jaccard) for jaccard in (1.0, 0.8, 0.5)] == [0, 16, 30]
