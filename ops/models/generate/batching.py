"""Group prompts into batches by their cost: padding makes prefill expensive, few rows make decoding expensive.

A step of decoding reads all weights, however many rows it has. That takes as long as the prefill of some 200 tokens: a
weight is 2 bytes to read and 2 operations a token, and an H100 does 200 such operations (at half of its peak) while it
reads 2 bytes. The number depends on the card alone, not on the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Tokens whose prefill takes as long as reading the weights once.
WEIGHTS = 200
# Steps of a batch: captions have a median of 55 tokens.
STEPS = 60
# The most tokens of one prefill: more gain nothing, and their activations take memory (6 GB of a 17B model at 16,384).
PREFILL = 16_384
# Groups of prompts that fill all slots of a decoder whose slots are refilled.
GROUPS = 10
# Maximum padding of a batch on a CPU, as a share of its tokens.
MOST_PADDING = 0.05


@dataclass(frozen=True)
class BatchPart:
    """Inputs of some rows of a batch for the model, on the CPU, padded to the longest of these rows."""

    rows: list[int]  # their numbers in the batch
    inputs: dict[str, Any]


def n_tokens(parts: Sequence[BatchPart]) -> list[int]:
    """Return the number of prompt tokens of each row of a prepared batch, without padding, in row order."""
    counts: dict[int, int] = {}
    for part in parts:
        counts.update(zip(part.rows, part.inputs["attention_mask"].sum(1).tolist(), strict=True))
    return [counts[row] for row in range(len(counts))]


def similar_length_batches(lengths: list[int], batch_size: int) -> list[list[int]]:
    """Group row numbers into batches of at most ``batch_size`` rows of similar length, longest first.

    At most 5 % of a batch's tokens are padding. Ties keep row order, so the batches depend on the lengths (in tokens)
    and the batch size alone. This is the grouping on CPUs, where results repeat exactly only if batches are equal.
    """
    batches: list[list[int]] = []
    tokens = 0  # of the current batch, without padding
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        padded = lengths[batches[-1][0]] * (len(batches[-1]) + 1) if batches else 0
        if not batches or len(batches[-1]) == batch_size or padded - tokens - lengths[row] > MOST_PADDING * padded:
            batches.append([])
            tokens = 0
        batches[-1].append(row)
        tokens += lengths[row]
    return batches


def padded_batches(lengths: list[int], most: int, room: int) -> list[list[int]]:
    """Group row numbers into the cheapest batches for a GPU, where all rows are padded to the longest, longest first.

    A batch has at most ``most`` rows and ``room`` prompt tokens with its padding (0: no limit); a longer row is alone.
    """
    return _cut(lengths, most, room, STEPS * WEIGHTS)


def refill_groups(lengths: list[int], slots: int) -> list[list[int]]:
    """Group prompts for prefill with least cost, longest first, to refill ``slots`` decoding slots as answers end.

    Returns groups of row numbers. A group has at most a tenth of the slots. While it waits, half of its slots are empty
    in the mean; smaller groups read the weights more often: 200 tokens' time for 25 rows of 256, which take 25 x 47 to
    decode.
    """
    return _cut(lengths, max(1, slots // GROUPS), PREFILL, WEIGHTS)


def prefill_parts(lengths: list[int]) -> list[list[int]]:
    """Group the row numbers of one decoding batch into the cheapest parts to prefill, longest first."""
    return _cut(lengths, len(lengths), PREFILL, WEIGHTS)


def _cut(lengths: list[int], most: int, room: int, fixed: int) -> list[list[int]]:
    """Cut the rows, longest first, where padding plus ``fixed`` a batch is least: O(n * most), 60 ms for 4,096."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])  # ties keep row order
    tokens = np.array([lengths[row] for row in order], np.int64)
    cost, before = np.zeros(len(order) + 1, np.int64), np.zeros(len(order) + 1, np.int64)
    for stop in range(1, len(order) + 1):
        starts = np.arange(max(0, stop - most), stop)
        padded = tokens[starts] * (stop - starts)
        fits = (padded <= room) if room else np.ones(len(starts), bool)
        fits[-1] = True  # a single row
        found = np.where(fits, cost[starts] + padded + fixed, np.iinfo(np.int64).max)
        before[stop] = starts[best := int(found.argmin())]
        cost[stop] = found[best]
    batches, stop = [], len(order)
    while stop:
        batches.append(order[before[stop] : stop])
        stop = int(before[stop])
    return batches[::-1]
