"""Designs of several factors at once, and the effects that they find."""

import numpy as np
import pytest

from pairmill.ops.whole.cut_trials import main_effects, plackett_burman


@pytest.mark.parametrize(("factors", "runs"), [(1, 8), (3, 8), (7, 16), (11, 24), (12, 40), (23, 48)])
def test_a_design_is_balanced_and_keeps_main_effects_apart_from_each_other_and_from_interactions(
    factors: int, runs: int
):
    signs = np.where(plackett_burman(factors), 1, -1)
    assert signs.shape == (runs, factors)
    assert not signs.sum(0).any() and np.array_equal(signs.T @ signs, runs * np.eye(factors))
    both = [signs[:, a] * signs[:, b] for a in range(factors) for b in range(a)]
    assert not any((signs.T @ each).any() for each in both)


def test_effects_are_those_of_least_squares():
    rng, design = np.random.default_rng(1), plackett_burman(5)
    values = rng.standard_normal((4, len(design)))
    model = np.column_stack([np.ones(len(design)), np.where(design, 1, -1)])
    fitted = np.linalg.lstsq(model, values.T, rcond=None)[0][1:].T
    assert main_effects(values, design) == pytest.approx(2 * fitted)
