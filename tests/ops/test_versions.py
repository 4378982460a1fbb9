"""What each version of an op without a class of its own gives for ordinary inputs: another output asks for the next."""

import ast
from pathlib import Path

import numpy as np

from pairmill.ops.pair import fuse, similarity
from pairmill.ops.text import generation_status
from pairmill.ops.text.split import SentenceSplitter, normalise
from pairmill.ops.whole import components, hamming, kmeans, search, semantic
from pairmill.ops.whole.ranking import unit
from tests.worlds.golden import check_golden

ROOT = Path(__file__).resolve().parents[2]


def directions(n: int, groups: int = 4) -> np.ndarray:
    """Unit vectors (n, 8) around ``groups`` directions far from each other, by turns; each a little off its own."""
    random = np.random.default_rng(7)
    heads = np.eye(8, dtype=np.float32)[:groups]
    return unit(heads[np.arange(n) % groups] + 0.05 * random.standard_normal((n, 8)).astype(np.float32))


def test_pairs_of_near_hashes():
    hashes = np.array([0, 1, 3, 0, 2**40, 2**40 + 15, 2**63, 2**64 - 1, 2**64 - 16], np.uint64)
    new = np.arange(len(hashes)) > 1
    check_golden("hamming_edges", hamming.VERSION, np.stack(hamming.hamming_edges(hashes, new, 4)))


def test_pairs_of_near_vectors():
    vectors = directions(12).astype(np.float16)
    rows = np.arange(12)
    found = semantic.edges_within(vectors, rows > 3, rows, rows % 2, 0.9, most=1)
    check_golden("semantic_edges", semantic.VERSION, list(found))


def test_groups_of_near_pictures():
    ends = np.array([0, 1, 2, 3, 6, 7]), np.array([1, 2, 3, 4, 7, 8])
    labels, oversized = components.recut(10, ends, np.array([0.1, 0.9, 0.1, 0.5, 0.2, 0.2]), 3)
    check_golden("groups", components.VERSION, [labels, [part.parts for part in oversized]])


def test_centroids():
    check_golden("kmeans_train", kmeans.TRAIN_VERSION, kmeans.train(directions(200), 4, seed=3, iterations=5))


def test_nearest_centroids():
    check_golden("kmeans_assign", kmeans.ASSIGN_VERSION, kmeans.assign(directions(9), directions(5, 5), 2))


def test_nearest_sentences():
    queries, vectors = directions(3), directions(12)
    found = search.top_k(queries, np.array([[0, 1], [1, -1], [2, 0]]), vectors, np.array([0, 5, 9, 12]), 3)
    check_golden("top_k", search.VERSION, list(found))
    groups = np.arange(12) % 4
    apart = search.top_k_apart(
        queries, np.array([[0, 1], [1, -1], [2, 0]]), vectors, np.array([0, 5, 9, 12]), 3, groups
    )
    check_golden("top_k_apart", search.VERSION, list(apart))


def test_similarities():
    left, right = directions(4), directions(4)[::-1]
    values = [similarity.similarity(left, right), similarity.max_similarity(left, right, np.array([0, 0, 1, 2]))]
    check_golden("similarity", similarity.VERSION, values)


def test_statuses_of_generated_texts():
    texts = ["", "!", "A dog.", "A dog and", "row by row by row", "a cat " * 6, "0" * 40, "very, very, very good"]
    found = [generation_status.generation_status(text, finish) for text in texts for finish in ("stop", "length")]
    check_golden("generation_status", generation_status.VERSION, found)


def test_prompts_that_are_filled():
    template = "Caption: {caption} Tags: {tags} Text: {sentence} {{}}"
    check_golden("fuse_prompt", fuse.VERSION, fuse.fuse_prompt(template, " A {dog}. ", ["dog", "a lawn"], " It ran. "))


def test_ids_of_sentences():
    texts = ["  Ａ  Straße\n", "e\u0301", "ﬁne", "I\u0307", "plain"]
    check_golden("normalise", SentenceSplitter().version, [normalise(text) for text in texts])


def test_every_scorer_has_the_version_of_what_computes_it():
    """A literal one would stand when the op's output changes."""
    made = [
        call
        for path in sorted((ROOT / "tasks").rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Scorer"
    ]
    assert len(made) > 8
    assert not [ast.unparse(call) for call in made if isinstance(call.args[2], ast.Constant)]
