"""Inputs that practitioners reported about tools of this kind: a run gives the right value of each."""

import pytest

from tests.worlds.reports.questions import QUESTIONS, TABLE, Curated, Question, curated, make_lake
from tests.worlds.shared import made_once


@pytest.fixture(scope="module")
def lake() -> Curated:
    return curated(made_once("reports-lake", make_lake))


@pytest.mark.parametrize("question", QUESTIONS, ids=[each.row.split(",")[0] for each in QUESTIONS])
def test_a_reported_input_gives_its_right_value(lake: Curated, question: Question):
    assert question.ask(lake) == question.right


def test_each_row_of_the_table_is_asked():
    rows = [line.strip("| ").split(" | ")[0] for line in TABLE.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert [each.row for each in QUESTIONS] == sorted(rows[1:], key=[each.row for each in QUESTIONS].index)
