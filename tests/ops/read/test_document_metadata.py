import json
import math
import re

from hypothesis import example, given
from hypothesis import strategies as st

from pairmill.catalog.terms.controls import printable
from pairmill.ops.read.document import MAX_TEXT, as_storable
from tests.examples import examples

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.binary(max_size=70))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner), max_leaves=6
)


def plain(value: object) -> object:
    """Numbers that are none as null; of texts what can be shown: JSON escapes the other letters, or they are gone."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return printable(value) if isinstance(value, str) else value


@examples(200)
@example({"": "\x1f\x0b"})  # a vertical tab is white space, whether JSON escapes it or not
@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=6))
def test_what_is_kept_can_be_written_as_json_and_as_utf8(row):
    kept = as_storable(row)
    text = json.dumps(kept, allow_nan=False, ensure_ascii=False)
    assert json.loads(text) == kept
    assert text.encode()
    for name, value in row.items():
        # No other is called so without its control codes.
        alone = [re.sub(r"[\0-\x1f\x7f-\x9f]", "", printable(other)) for other in row].count(name) == 1
        if alone and printable(name) == name and isinstance(value, int | float | str | None):
            assert name in kept and plain(kept[name]) == plain(value)


def test_a_value_larger_than_its_picture_is_left_out_and_a_digest_is_in_hex():
    row = {"a": "x" * MAX_TEXT, "b": ["x" * 100] * 1000, "c": "kept", "sha256": bytes(range(32)), "image": b"\xff\xd8"}
    assert as_storable(row) == {"c": "kept", "sha256": bytes(range(32)).hex()}
