import json

import numpy as np
import pytest

from tests.worlds import golden


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    monkeypatch.delenv("PAIRMILL_WRITE_GOLDEN", raising=False)
    return tmp_path


def write(monkeypatch, *arguments):
    with monkeypatch.context() as patch:
        patch.setenv("PAIRMILL_WRITE_GOLDEN", "1")
        golden.check_golden(*arguments)


def test_missing_values_fail_and_say_how_to_write_them(folder):
    with pytest.raises(AssertionError, match="PAIRMILL_WRITE_GOLDEN=1"):
        golden.check_golden("op", 1, [1])
    assert not list(folder.iterdir())


def test_equal_values_pass_and_floats_may_differ_by_a_thousandth(folder, monkeypatch):
    write(monkeypatch, "op", 1, {"a": np.array([1.0, 2000.0]), "b": "x", "n": 3})
    golden.check_golden("op", 1, {"a": [1.0009, 2001.9], "b": "x", "n": 3})


@pytest.mark.parametrize("changed", [{"a": 1.002, "n": 3}, {"a": 1.0, "n": 4}, {"a": 1.0}, {"a": [1.0], "n": 3}])
def test_changed_values_of_a_version_ask_to_bump_it_even_when_told_to_write(folder, monkeypatch, changed):
    write(monkeypatch, "op", 1, {"a": 1.0, "n": 3})
    with pytest.raises(AssertionError, match=r"bump version \(it is 1\)"):
        golden.check_golden("op", 1, changed)
    with pytest.raises(AssertionError, match="bump version"):
        write(monkeypatch, "op", 1, changed)


def test_a_bumped_version_is_written_anew_and_an_older_one_refused(folder, monkeypatch):
    write(monkeypatch, "op", 1, [1])
    with pytest.raises(AssertionError, match="of version 1"):
        golden.check_golden("op", 2, [2])
    write(monkeypatch, "op", 2, [2])
    assert json.loads((folder / "op.json").read_text()) == {"version": 2, "values": [2]}
    with pytest.raises(AssertionError, match="older"):
        write(monkeypatch, "op", 1, [1])
