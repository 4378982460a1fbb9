import re
from dataclasses import replace

import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.write.scorer import Scorer, register

SCORER = Scorer("clip", "image_embedding", 1, {"precision": "fp32", "sides": [224, 336]}, "m" * 32, ("a", "b"))


def test_what_changes_values_changes_the_digest_and_placement_does_not() -> None:
    assert re.fullmatch("[0-9a-f]{32}", SCORER.digest)
    changed = (
        replace(SCORER, version=2),
        replace(SCORER, name="clip2"),
        replace(SCORER, model="n" * 32),
        replace(SCORER, made_from=("a",)),
        replace(SCORER, settings={"precision": "bf16", "sides": [224, 336]}),
    )
    assert len({SCORER.digest, *(scorer.digest for scorer in changed)}) == 6
    same = replace(SCORER, table="elsewhere", made_from=("b", "a"), settings={"sides": (224, 336), "precision": "fp32"})
    assert same.digest == SCORER.digest


def test_the_digest_is_the_same_in_every_process() -> None:
    assert Scorer("phash", "image_hash", 1).digest == "d99a8cf646c92409b1cc30cf75089a94"


def test_settings_that_are_not_json_are_refused() -> None:
    for value in ({1, 2}, float("nan"), object()):
        with pytest.raises((TypeError, ValueError)):
            _ = replace(SCORER, settings={"x": value}).digest


def test_a_scorer_is_registered_once_with_the_libraries(lake: Lake) -> None:
    other = replace(SCORER, version=2)
    assert register(lake, [(SCORER, 1), (SCORER, 1)]) == 1
    assert register(lake, [(SCORER, 2), (other, 2)]) == 1
    assert register(lake, []) == 0
    rows = lake.query("SELECT name, version, made_from, \"commit\", libraries->>'numpy' FROM scorers ORDER BY version")
    assert [row[:4] for row in rows] == [("clip", 1, ["a", "b"], 1), ("clip", 2, ["a", "b"], 2)]
    assert rows[0][4][0].isdigit()
    assert hash(SCORER) == hash(replace(SCORER))
