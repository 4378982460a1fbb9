import dataclasses

import pytest

from pairmill.ops.fault import REASONS, Fault


def test_a_reason_outside_the_closed_list_is_a_bug_and_raises():
    with pytest.raises(ValueError, match="'broken' is not a quarantine reason"):
        Fault("a.jpg", "broken", "")


def test_every_listed_reason_is_accepted_once():
    assert len(set(REASONS)) == len(REASONS)
    assert [Fault("a", reason, "").reason for reason in REASONS] == list(REASONS)


def test_a_fault_can_be_named_later_without_changing_the_first():
    nameless = Fault("", "empty", "no bytes")
    assert nameless.about("a.jpg") == Fault("a.jpg", "empty", "no bytes")
    assert nameless.item == ""
    with pytest.raises(dataclasses.FrozenInstanceError):
        nameless.item = "b"  # pyright: ignore[reportAttributeAccessIssue]
