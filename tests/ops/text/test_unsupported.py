import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.text.unsupported import count_unsupported
from tests.worlds.golden import check_golden

SOURCES = (
    "A sign that says “Open until 9.30”, with three cats.",
    "cat, sign",
    "The shop made 1,200 in 1998, in '98 prices.",
)


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("A sign with three cats.", 0),
        ("A sign with 3 cats.", 0),
        ("A sign with 4 cats.", 1),
        ("A sign with four cats.", 0),  # words are no claim: they are said of what is seen
        ("It made 1200, that is 1200.0, in 1998.", 0),
        ("It made 1,200.50 in 1999.", 2),
        ("It says 'open until 9.30'.", 0),
        ('It says "OPEN  until 9.30!"', 0),
        ('It says "Closed".', 1),
        ("It says “Closed” and «Closed» and 'closed'.", 1),
        ("It's the cats' sign, isn't it, at 9.30 o'clock.", 0),
        ("In the '90s and rock 'n' roll", 2),
        ("Route 66, 007", 2),
        ("Of 1998, 3 and 9.30", 0),
        ("Version 1.2.3", 1),
        ("", 0),
    ],
)
def test_what_no_source_says_is_counted_once(text: str, n: int):
    assert count_unsupported(text, SOURCES) == n


@given(st.lists(st.integers(0, 10**9), max_size=6), st.lists(st.text("abc xyz'", max_size=12), max_size=4))
def test_a_source_supports_whatever_it_says(numbers: list[int], said: list[str]):
    text = " and ".join([*map(str, numbers), *(f"“{each}”" for each in said)])
    assert count_unsupported(text, (text,)) == 0
    assert count_unsupported(text, ("other words", text, "")) == 0


@given(st.sets(st.integers(20, 10**6), max_size=8), st.sets(st.integers(20, 10**6), max_size=8))
def test_distinct_numbers_that_no_source_has_are_counted(said: set[int], known: set[int]):
    text = "; ".join(f"no {number:,}" for number in sorted(said)) * 2
    assert count_unsupported(text, [f"there are {number} of them" for number in known]) == len(said - known)


@given(st.text(max_size=200), st.lists(st.text(max_size=50), max_size=3))
def test_any_text_has_a_count(text: str, sources: list[str]):
    assert count_unsupported(text, sources) >= 0


def test_counts_stay():
    texts = ["A sign with 4 cats, “Closed”.", "1,200.50 in 1999 and 1998", "'x' isn't 'y'"]
    check_golden("unsupported", 1, [count_unsupported(text, SOURCES) for text in texts])
