"""torch's flash kernel for rows of unlike lengths, which runs on GPUs alone: here by plain attention, row by row."""

from __future__ import annotations

from inspect import signature
from itertools import pairwise
from typing import Any

import pytest
import torch

from pairmill.ops.models.generate.cuda_graph_decoding import Decoder
from pairmill.ops.models.generate.quick_parts import share_keys, takes_lengths

attend: Any = torch.nn.functional.scaled_dot_product_attention


def by_bounds(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend as ``varlen_attn`` does: (tokens, heads, width), each row to the first ``seqused_k`` of its own keys."""
    used = cu_seq_k.diff() if seqused_k is None else seqused_k
    assert cu_seq_q.dtype == cu_seq_k.dtype == used.dtype == torch.int32, "the kernel takes no other"
    assert cu_seq_q.diff().max() == max_q and cu_seq_k.diff().max() == max_k and bool((used <= cu_seq_k.diff()).all())
    assert enable_gqa == (query.shape[1] != key.shape[1]), "the kernel takes heads that share keys if it is told"
    found = []
    for (a, b), start, n in zip(pairwise(cu_seq_q.tolist()), cu_seq_k.tolist(), used.tolist(), strict=False):
        row = [each.transpose(0, 1)[None] for each in (query[a:b], key[start : start + n], value[start : start + n])]
        how: dict[str, Any] = {"is_causal": window_size == (-1, 0), "enable_gqa": enable_gqa}
        found.append(attend(*row, scale=scale, **how)[0].transpose(0, 1))
    return torch.cat(found)


def by_lengths(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Let a decoder attend by lengths; return the calls of attention to come, each with the columns that it reads.

    'kernel' is a call of the stand-in, 'sdpa' one of torch's own function without a mask, 'masked' one with a mask.
    """
    calls: list[tuple[str, int]] = []

    def kernel(*given: Any, **how: Any) -> torch.Tensor:
        used = how.get("seqused_k")
        calls.append(("kernel", int((given[4].diff() if used is None else used).sum())))
        return by_bounds(*given, **how)

    def sdpa(query: Any, key: Any, value: Any, attn_mask: Any = None, **how: Any) -> torch.Tensor:
        calls.append(("sdpa" if attn_mask is None else "masked", key.shape[0] * key.shape[2]))
        return attend(query, key, value, attn_mask=attn_mask, **how)

    kernel.__signature__ = signature(by_bounds)  # pyright: ignore[reportFunctionMemberAccess]
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", sdpa)
    share_keys(decoder.model)
    assert takes_lengths(decoder.model)
    decoder.attend_by_lengths(True)
    return calls
