"""Prove dataset versions: train linear heads on a version, the raw pool and controls, and compare what they learn."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.proof_pairs import ORACLE, RAW, read_features
from pairmill.catalog.queries.figures.proofs import ProofLine
from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.whole.cut_trials import UNSEEN, Gain, Pool, centred, difference, kinds_of, random_arm, recalls

RANDOM, KEPT, DROPPED = "random", "kept", "dropped"
Recalls = list[Mapping[str, Mapping[str, float]]]  # by seed: arm -> held-out set -> R@5
Arms = dict[str, np.ndarray]


def read_pool(lake: Lake, scorers: tuple[str, str], judge: str) -> tuple[Pool, Arms]:
    """Read the judge's features of the listed pairs; return the pool, and the rows of the versions' and right pairs.

    A pool with truth holds out right pairs alone. Raises PairmillError if too few pairs have vectors.
    """
    pictures, texts, arms = read_features(lake, scorers)
    raw = arms.pop(RAW, np.empty((0, 2), np.int64))
    if not len(raw):
        raise PairmillError(f"--judge '{judge}' has no vector of a picture with a text; see `pairmill quarantine`.")
    vectors = centred(pictures)
    try:
        kinds = kinds_of(vectors)
    except ValueError as error:
        raise PairmillError(f"no proof can be made of this lake: {error}; take a larger one.") from error
    return Pool((vectors, centred(texts)), kinds, raw, arms.get(ORACLE, raw)), arms


def compare(pool: Pool, arms: Arms, seeds: int, tell: Callable[[str], None]) -> dict[str, list[ProofLine]]:
    """Train each version of ``arms`` and its controls with ``seeds`` paired seeds; return its lines by version.

    The controls come first: ``tell`` gets a line on what can be seen before a version is tried, and progress.
    """
    versions = [name for name in arms if name != ORACLE]
    sets = {}
    for name in versions:
        keeps = pool.kept_kinds(arms[name])
        sets |= {f"{KEPT} {name}": keeps, f"{DROPPED} {name}": ~keeps}

    def controls(seed: int) -> Arms:
        return {RAW: pool.raw} | {f"{RANDOM} {name}": random_arm(pool.raw, len(arms[name]), seed) for name in versions}

    found: Recalls = []
    least = min(map(len, (pool.raw, *arms.values())))
    for seed in range(seeds):
        tell(f"controls, seed {seed + 1} of {seeds}")
        found.append(recalls(pool, controls(seed), sets, seed, least))
    for name in versions:
        seen = _against_raw(found, f"{RANDOM} {name}", UNSEEN)
        shown = (
            "nothing, the held-out sets are too small"
            if seen is None
            else f"a difference from {seen.detectable:.3f} on"
        )
        tell(f"power: with {len(pool.raw):,} pairs and {seeds} seeds, {name} against raw on unseen kinds shows {shown}")
    for seed in range(seeds):
        tell(f"versions, seed {seed + 1} of {seeds}")
        found[seed] = {**found[seed], **recalls(pool, arms, sets, seed, least)}
    return {name: _lines(pool, arms, name, found) for name in versions}


def _lines(pool: Pool, arms: Arms, version: str, found: Recalls) -> list[ProofLine]:
    """Return a version's lines: raw, random, the version and the oracle, on each held-out set."""
    drawn = random_arm(pool.raw, len(arms[version]), 0)
    shown = {RAW: pool.raw, f"{RANDOM} {version}": drawn, version: arms[version]}
    shown |= {ORACLE: arms[ORACLE]} if ORACLE in arms else {}
    lines = []
    for arm, rows in shown.items():
        kinds = len(np.unique(pool.kinds[rows[:, 0]]))
        for held_out in (UNSEEN, KEPT, DROPPED):
            which = held_out if held_out == UNSEEN else f"{held_out} {version}"
            values = [by_arm[arm][which] for by_arm in found]
            mean = None if np.isnan(values).any() else round(float(np.mean(values)), 4)
            power = _against_raw(found, f"{RANDOM} {version}", which)
            against = _against_raw(found, arm, which, power) if arm != RAW else None
            line = ProofLine(arm.partition(" ")[0], len(rows), kinds, held_out, mean)
            if against and arm != RAW:
                line = _with(line, against)
            elif arm != RAW:
                line = replace(line, verdict="too few to tell")
            lines.append(line)
    return lines


def _with(line: ProofLine, found: Gain) -> ProofLine:
    """Return a line with a difference, rounded to 4 decimals, and its verdict."""
    mean, half, detectable = (round(each, 4) for each in (found.mean, found.half, found.detectable))
    return replace(line, difference=mean, half=half, detectable=detectable, verdict=found.verdict)


def _against_raw(found: Recalls, arm: str, held_out: str, control: Gain | None = None) -> Gain | None:
    """Return the paired difference of an arm to raw on a held-out set; None if the set is too small for some seed."""
    values = [by_arm[arm][held_out] - by_arm[RAW][held_out] for by_arm in found]
    return None if np.isnan(values).any() else difference(values, control.detectable if control else None)
