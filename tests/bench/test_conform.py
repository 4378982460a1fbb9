"""The bench `conform` counts, by rule, the released texts that a recipe would drop."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from infra.bench.conform import conform, main, released_texts
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.run.settings import load_recipe
from tests.ops.text.test_rules_of_the_paper import SHAPES

DROPPED = {
    "length": ["Dogs slept."],
    "no_url": ["See www.example.org for the plan of the harbour."],
    "no_emoji": ["The harbour was full of boats today \U0001f389."],
    "action": ["The old harbour of Leith, with two boats."],
}


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A table of RealSyn's form: a text twice, one missing, and one for each rule that would drop it."""
    texts = [*SHAPES, *(text for found in DROPPED.values() for text in found), SHAPES[0]]
    texts += [None] * (-len(texts) % 3)
    columns = {f"text{n + 1}": texts[n::3] for n in range(3)}
    address = {"raw_image_url": ["https://x.example/a.jpg"] * (len(texts) // 3)}
    pq.write_table(pa.table(address | columns | {"syn_text": ["Made."] * (len(texts) // 3)}), tmp_path / "real.parquet")
    return tmp_path / "real.parquet"


@pytest.mark.slow
def test_each_text_is_counted_once_under_each_rule_that_drops_it(released: Path):
    texts = released_texts(str(released), rows=1000)
    assert sorted(texts) == sorted({*SHAPES, *(text for found in DROPPED.values() for text in found)})
    found = {each.rule: each for each in conform(compile_plan(load_recipe("30m", None, "demo")), texts)}
    assert set(found) == {"length", "no_url", "no_emoji", "entropy", "complexity", "action"}
    assert {rule: list(each.examples) for rule, each in found.items() if each.dropped} == DROPPED
    assert {each.dropped for each in found.values()} == {0, 1}
    # `repeats` counts occurrences in a lake, which texts alone do not tell
    of_demo = {each.rule: each.dropped for each in conform(compile_plan(load_recipe("demo")), texts[:4])}
    assert of_demo["repeats"] is None and of_demo["boilerplate"] == 0


def test_rows_are_drawn_alike_each_time_and_no_more_than_asked_for(released: Path):
    few = released_texts(str(released), rows=2)
    assert 4 <= len(few) <= 6 and few == released_texts(str(released), rows=2)


@pytest.mark.slow
def test_the_command_prints_counts_and_examples(released: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(released), "30m", "--models", "demo"]) == 1
    out = capsys.readouterr().out
    assert "24 distinct texts" in out and "action: The old harbour of Leith, with two boats." in out


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("texts.txt", "is no table of released texts; name a file that ends in .parquet, .csv, .jsonl"),
        ("none.parquet", "cannot be read"),
        ("other.csv", "it needs the columns text1, text2, text3"),
        ("empty.csv", "there are no texts to test in this file"),
    ],
)
def test_a_file_of_another_kind_is_one_line(tmp_path: Path, name: str, told: str):
    pyarrow.csv.write_csv(pa.table({"a": [1]}), tmp_path / "other.csv")
    (tmp_path / "empty.csv").write_text("text1,text2,text3\n")
    (tmp_path / "texts.txt").write_text("One.")
    with pytest.raises(PairmillError, match=told):
        conform(compile_plan(load_recipe("30m", None, "demo")), released_texts(str(tmp_path / name), 10))
