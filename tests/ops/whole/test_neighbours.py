import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.whole.hamming import near_in_order

WINDOW, FURTHEST = 3, 2


def slow(runs: list[int], sketches: list[int], is_new: list[bool]) -> set[tuple[int, int]]:
    return {
        (i, j)
        for j in range(len(runs))
        for i in range(max(0, j - WINDOW), j)
        if runs[i] == runs[j] and (sketches[i] ^ sketches[j]).bit_count() <= FURTHEST and (is_new[i] or is_new[j])
    }


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 15), st.booleans()), max_size=30)


@given(ROWS, st.integers(0, 30))
def test_pairs_of_a_run_are_those_of_the_slow_twin_in_one_block_or_two(rows: list[tuple[int, int, bool]], cut: int):
    runs, sketches, is_new = zip(*sorted(rows), strict=True) if rows else ((), (), ())

    def found(start: int, end: int, known: int) -> set[tuple[int, int]]:
        part = slice(start, end)
        left, right = near_in_order(
            np.array(runs[part], np.uint64), np.array(sketches[part], np.uint64), np.array(is_new[part], bool),
            WINDOW, FURTHEST, known,
        )  # fmt: skip
        assert len(set(zip(left.tolist(), right.tolist(), strict=True))) == len(left)
        return {(start + i, start + j) for i, j in zip(left.tolist(), right.tolist(), strict=True)}

    expected = slow(list(runs), list(sketches), list(is_new))
    assert found(0, len(runs), 0) == expected
    cut = min(cut, len(runs))
    known = min(cut, WINDOW)
    first, second = found(0, cut, 0), found(cut - known, len(runs), known)
    assert first | second == expected and not first & second
