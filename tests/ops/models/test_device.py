"""Number formats."""

import warnings

import pytest
import torch

from pairmill.ops.models.device.device import device, dtype
from pairmill.ops.models.model_digest import ModelError
from pairmill.ops.whole.ranking import multiplies_bfloat16


def test_a_precision_is_taken_as_it_is_or_refused():
    assert dtype("fp32") == torch.float32
    with pytest.raises(ModelError, match="write one of fp32, bf16"):
        dtype("fp16")


def test_bf16_where_the_cpu_has_no_instructions_for_it_is_said_and_done():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert dtype("bf16") == torch.bfloat16
    assert bool(said) == (device().type == "cpu" and not multiplies_bfloat16())
    assert all("Set precision to fp32" in str(each.message) for each in said)
