import dataclasses

import pytest

from pairmill.ops.fault import REASONS, Fault, in_words


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


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("cannot identify image file <_io.BytesIO object at 0x7f3a5c0b9e40>"), "its header is damaged"),
        (ValueError("could not create decoder object"), "its header is damaged, or the file is cut"),
        (ValueError("tjDecompress2(): Unsupported\n marker"), "Unsupported marker"),
        (KeyError("MPO"), "it has no entry 'MPO'"),
        (OSError(-1), "os error -1"),
        (IndexError(), "index error"),
        (TypeError("<PIL.Image.Image image mode=L size=2x2 at 0x7F3A5C0B9E40> is none"), "the data is none"),
    ],
)
def test_an_error_of_a_library_is_told_in_words(error: Exception, said: str):
    assert in_words(error) == said


def test_a_detail_quotes_no_address_in_memory_which_would_differ_between_runs():
    fault = Fault("a.jpg", "undecodable", "cannot identify image file <_io.BytesIO object at 0x7f3a5c0b9e40>")
    assert fault.detail == "cannot identify image file the data"
