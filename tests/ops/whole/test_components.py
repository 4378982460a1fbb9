import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.whole.components import components, recut
from tests.examples import examples
from tests.reference.components import walk


def ends(edges: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    n = draw(st.integers(1, 30))
    node = st.integers(0, n - 1)
    return n, draw(st.lists(st.tuples(node, node), max_size=40))


@given(graphs())
@examples(300)
def test_every_node_carries_the_smallest_node_that_a_walk_reaches(graph):
    n, edges = graph
    assert components(n, ends(edges)).tolist() == walk(n, edges)


def test_a_long_chain_in_any_order_is_one_component():
    n = 20_000
    order = np.random.default_rng(0).permutation(n)
    assert (components(n, (order[:-1], order[1:])) == 0).all()
    assert (components(n, (np.arange(n - 1), np.arange(1, n))) == 0).all()


def test_further_columns_of_the_edges_are_not_looked_at():
    assert components(3, (np.array([1]), np.array([2]), np.array([0.5]))).tolist() == [0, 1, 1]


@given(graphs(), st.integers(1, 8), st.data())
@examples(300)
def test_after_a_recut_every_part_fits_and_lies_inside_its_component(graph, max_group: int, data: st.DataObject):
    n, edges = graph
    distance = np.array(
        data.draw(st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]), min_size=len(edges), max_size=len(edges)))
    )
    labels, report = recut(n, ends(edges), distance, max_group)
    whole = np.array(walk(n, edges))
    sizes, before = np.bincount(labels, minlength=n), np.bincount(whole, minlength=n)
    assert sizes.max() <= max_group
    assert (whole[labels] == whole).all() and (labels <= np.arange(n)).all() and (labels[labels] == labels).all()
    fits = before[whole] <= max_group
    assert (labels[fits] == whole[fits]).all(), "a component within the limit stays as it is"
    assert [cut.label for cut in report] == np.flatnonzero(before > max_group).tolist()
    for cut in report:
        inside = whole == cut.label
        assert cut.size == inside.sum() and cut.parts == len(set(labels[inside].tolist()))


def test_only_the_tighter_edges_of_a_large_component_stay():
    # Two groups of three, tight inside (0.1), tied together by one loose edge (0.9).
    edges = [(0, 1), (1, 2), (3, 4), (4, 5), (2, 3)]
    labels, report = recut(7, ends(edges), np.array([0.1, 0.1, 0.1, 0.1, 0.9]), 3)
    assert labels.tolist() == [0, 0, 0, 3, 3, 3, 6]
    assert len(report) == 1 and report[0].size == 6 and report[0].parts == 2


def test_a_part_that_fits_keeps_its_looser_edges_while_another_is_cut_further():
    # 0-1-2 hang together by 0.6, 3..6 need cutting down to 0.3; one edge of 1.0 joins the two.
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
    labels, _ = recut(7, ends(edges), np.array([0.6, 0.6, 1.0, 0.3, 0.5, 0.3]), 3)
    assert labels.tolist() == [0, 0, 0, 3, 3, 5, 5]


def test_nodes_that_no_distance_parts_are_dealt_out_in_index_order():
    star = [(0, node) for node in range(1, 10)]
    labels, report = recut(10, ends(star), np.zeros(9), 4)
    assert labels.tolist() == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]
    assert len(report) == 1 and report[0].parts == 3


def test_the_order_of_the_edges_and_doubles_change_nothing():
    rng = np.random.default_rng(2)
    left, right = rng.integers(0, 200, size=(2, 300))
    distance = rng.random(300)
    expected = recut(200, (left, right), distance, 10)[0]
    order = np.r_[rng.permutation(300), rng.integers(0, 300, size=50)]
    assert (recut(200, (right[order], left[order]), distance[order], 10)[0] == expected).all()


def test_nothing_to_cut_reports_nothing():
    labels, report = recut(3, ends([]), np.array([]), 1)
    assert labels.tolist() == [0, 1, 2] and report == []
    with pytest.raises(ValueError, match="at least 1"):
        recut(3, ends([]), np.array([]), 0)
