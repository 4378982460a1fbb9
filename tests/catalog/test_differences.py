"""Two versions of a dataset side by side, against a comparison of dictionaries."""

from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.compare.version_diff import differences
from pairmill.catalog.queries.datasets import Dataset
from tests.examples import examples

FATES = st.sampled_from(["", "", "sharp", "balance"])
PAIR = st.tuples(st.sampled_from(["one", "two", None]), st.sampled_from(["a caption", None]))
RECIPE = '{"name": "some", "models": {"clip": "open_clip:ViT-B-32/laion"}}'
VERSION = st.dictionaries(st.sampled_from([f"i{n}" for n in range(12)]), st.tuples(FATES, PAIR), min_size=1)


def dataset(version: int) -> Dataset:
    return Dataset("some", version, RECIPE, version, "", False, 0, None, "run", datetime.now(UTC))


def fill(lake: Lake, version: int, items: dict[str, tuple[str, tuple[str | None, str | None]]]) -> None:
    def rows(table: str, **columns: list) -> None:
        n = len(next(iter(columns.values())))
        numbers = pa.array([version] * n, pa.int32())
        lake.insert(table, pa.table({**columns, "dataset": ["some"] * n, "version": numbers}))

    fates = [fate for fate, _ in items.values()]
    rows("decisions", item_id=list(items), dropped_by=fates, kind=["image"] * len(items))
    kept = {name: pair for name, (fate, pair) in items.items() if not fate}
    texts, captions = ([pair[n] for pair in kept.values()] for n in (0, 1))
    rows("pairs", image_id=pa.array(list(kept), pa.string()), text1=pa.array(texts, pa.string()),
         caption=pa.array(captions, pa.string()))  # fmt: skip


def expected(before: dict, after: dict) -> Counter:
    found: Counter = Counter()
    for name in before | after:
        old, new = before.get(name, ("gone", None)), after.get(name, ("gone", None))
        if old[0] and not new[0]:
            found["gained", "new" if name not in before else old[0]] += 1
        elif new[0] and not old[0]:
            found["lost", new[0]] += 1
        elif not old[0] and old[1] != new[1]:
            columns = [column for n, column in enumerate(("text1", "caption")) if old[1][n] != new[1][n]]
            found["changed", ", ".join(columns)] += 1
    return found


@given(before=VERSION, after=VERSION)
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pairs_gained_lost_or_changed_are_told_by_cause(lake: Lake, before: dict, after: dict):
    lake.execute("DELETE FROM decisions; DELETE FROM pairs")
    fill(lake, 1, before)
    fill(lake, 2, after)
    found = differences(lake, dataset(1), dataset(2), 0)
    assert {(each.kind, each.cause): each.n for each in found} == expected(before, after)
    assert differences(lake, dataset(1), dataset(1), 0) == ()


def test_the_commonest_causes_come_first(lake: Lake):
    same = (None, None)
    fill(lake, 1, {"a": ("sharp", same), "b": ("balance", same), "c": ("balance", same), "d": ("", same)})
    fill(lake, 2, {"a": ("", same), "b": ("", same), "c": ("", same), "d": ("sharp", same)})
    found = differences(lake, dataset(1), dataset(2), 0)
    assert [(each.kind, each.cause, each.n) for each in found] == [
        ("gained", "balance", 2),
        ("gained", "sharp", 1),
        ("lost", "sharp", 1),
    ]
