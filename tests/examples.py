"""Set how many examples a property is tried with, by the hypothesis profile (``tests/conftest.py`` registers two).

Choose the parameters of which the quick tests try a few.
"""

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

FULL = 100  # hypothesis' own default; in a profile with this many, a property runs with the count that it names


def examples(n: int, **more) -> settings:
    """Try a property with ``n`` examples in the full profile, with a share of ``n`` (at least 3) in a smaller one."""
    return settings(max_examples=max(n * settings().max_examples // FULL, min(n, 3)), **more)


def slow_but(quick: Collection, every: Iterable) -> list[Any]:
    """Return ``every`` value as a test's parameter. Those outside ``quick`` have the mark ``slow``."""
    return [each if each in quick else pytest.param(each, marks=pytest.mark.slow) for each in every]
