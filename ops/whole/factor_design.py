"""Designs of experiments that switch several factors at once, and the effects that they estimate."""

import numpy as np


def plackett_burman(factors: int) -> np.ndarray:
    """Return which factors are on in each run, bool (runs, factors): each in half of the runs, each pair in a quarter.

    The runs are the fewest p + 1 > ``factors`` with p a prime of 4k + 3, by the squares modulo p (Plackett and Burman
    1946; Paley 1933), and the same with on and off exchanged (Box and Wilson 1951): so no effect holds the interaction
    of two factors, as of two rules that drop the same pairs. 8 runs for up to 3 factors, 16 for 7, 24 for 11.
    """
    primes = (n for n in range(3, 4 * factors + 12, 4) if all(n % d for d in range(2, int(n**0.5) + 1)))
    p = next(n for n in primes if n >= factors)
    squares = {n * n % p for n in range(1, p)}
    row = np.array([n not in squares for n in range(p)])
    on = np.stack([np.roll(row, shift) for shift in range(p)])
    on = on if on[:, 0].sum() == (p + 1) // 2 else ~on
    design = np.vstack([on, np.zeros((1, p), bool)])[:, :factors]
    return np.vstack([design, ~design])


def main_effects(values: np.ndarray, design: np.ndarray) -> np.ndarray:
    """Return each factor's effect by replicate, (replicates, factors): the mean with it on less the mean with it off.

    ``values``: (replicates, runs); ``design``: bool (runs, factors), balanced and orthogonal, so that this is the least
    squares estimate of a model without interactions.
    """
    return np.asarray(values) @ np.where(design, 2.0, -2.0) / len(design)
