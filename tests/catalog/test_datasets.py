"""Datasets by name and version."""

from pathlib import Path

import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import datasets
from pairmill.catalog.terms.error import PairmillError
from tests.worlds.shared import opened_new


@pytest.fixture
def lake(tmp_path: Path):
    with opened_new(tmp_path / "lake") as opened:
        for name, version in (("demo", 1), ("demo", 2), ("demo", 10), ("30m", 1)):
            values = f"'{name}', {version}, '{{}}', 'd', [], {version}, 'c', false, 5, 0.9, 'r', now()"
            opened.execute(f"INSERT INTO datasets VALUES ({values})")
        yield opened


def test_a_bare_name_is_the_newest_version_by_number(lake: Lake):
    assert str(datasets.find(lake, "demo")) == "demo@10"
    assert str(datasets.find(lake, "demo@2")) == "demo@2"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dmo", "did you mean 'demo'?"),
        ("xyz", "there are 30m, demo."),
        ("demo@3", "has no version 3; its newest is demo@10"),
        ("demo@", "a number from 1"),
        ("demo@0", "a number from 1"),
        ("demo@new", "a number from 1"),
        ("demo@1@2", "a number from 1"),
        ("", "there are"),
    ],
)
def test_one_that_is_not_there_is_told_with_what_is(lake: Lake, spec: str, message: str):
    with pytest.raises(PairmillError, match=message.replace("?", r"\?")):
        datasets.find(lake, spec)
