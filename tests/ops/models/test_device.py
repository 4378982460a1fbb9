"""Number formats."""

import pytest
import torch

from pairmill.ops.models.device import run_notes
from pairmill.ops.models.device.device import device, dtype
from pairmill.ops.models.model_digest import ModelError
from pairmill.ops.whole.ranking import multiplies_bfloat16


def test_a_precision_is_taken_as_it_is_or_refused():
    assert dtype("fp32") == torch.float32
    with pytest.raises(ModelError, match="write one of fp32, bf16"):
        dtype("fp16")


def test_bf16_where_the_cpu_has_no_instructions_for_it_is_said_and_done():
    run_notes.take()
    assert dtype("bf16") == torch.bfloat16
    said = run_notes.take()
    assert bool(said) == (device().type == "cpu" and not multiplies_bfloat16())
    assert all("Set precision to fp32" in each for each in said)
