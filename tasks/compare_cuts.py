"""Prove dataset versions: train linear heads on a version, the raw pool and controls, and compare what they learn."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.proof_pairs import ORACLE, RAW, read_features
from pairmill.catalog.queries.figures.proofs import ProofLine
from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.whole import cut_trials
from pairmill.ops.whole.cut_trials import FEWEST, UNSEEN, Gain, Pool, difference, random_arm, recalls

RANDOM, KEPT, DROPPED = "random", "kept", "dropped"
Recalls = list[Mapping[str, Mapping[str, float]]]  # by seed: arm -> held-out set -> R@5
Arms = dict[str, np.ndarray]


def read_pool(lake: Lake, scorers: tuple[str, str], judge: str) -> tuple[Pool, Arms, np.ndarray]:
    """Read the judge's features of the listed pairs.

    Returns the pool, the rows of the versions' and of the right pairs, and the id of each row of pictures. A pool with
    truth holds out right pairs alone. Raises PairmillError if too few pairs have vectors.
    """
    pictures, texts, arms, ids = read_features(lake, scorers)
    raw = arms.pop(RAW, np.empty((0, 2), np.int64))
    if not len(raw):
        raise PairmillError(f"--judge '{judge}' has no vector of a picture with a text; see `pairmill quarantine`.")
    vectors = cut_trials.centred(pictures)
    try:
        kinds = cut_trials.kinds_of(vectors)
    except ValueError as error:
        raise PairmillError(f"no proof can be made of this lake: {error}; take a larger one.") from error
    return Pool((vectors, cut_trials.centred(texts)), kinds, raw, arms.get(ORACLE, raw)), arms, ids


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
        shown = f"a difference from {seen.detectable:.3f} on" if seen else "nothing, the held-out sets are too small"
        tell(f"power: with {len(pool.raw):,} pairs and {seeds} seeds, {name} against raw on unseen kinds shows {shown}")
    for seed in range(seeds):
        tell(f"versions, seed {seed + 1} of {seeds}")
        found[seed] = {**found[seed], **recalls(pool, arms, sets, seed, least)}
    return {name: _lines(pool, arms, name, found) for name in versions}


def price_rules(
    pool: Pool, failed: Mapping[str, np.ndarray], seeds: int, tell: Callable[[str], None]
) -> list[ProofLine]:
    """Return each rule's price: R@5 on unseen kinds with it less with a lot in its place, the dearest rule last.

    ``failed``: rule -> whether it drops the picture, bool by row of the pool's pictures. A lot drops as many pairs,
    other ones by each seed, so that intervals include which pairs a rule happens to drop. The cuts of a Plackett-Burman
    design switch all rules at once; a seed has two designs, with a drawn half of the rules as lots, and the other half.
    Raises PairmillError if there is no rule, or a cut is too small.
    """
    if not failed:
        raise PairmillError("--rules: no rule on pictures drops any; leave it out.")
    names, design = [*failed], cut_trials.plackett_burman(len(failed))
    drops = np.stack([failed[name][pool.raw[:, 0]] for name in names], 1)
    prices = np.empty((seeds, len(names)))
    is_real = np.zeros(len(names), bool)
    for seed in range(seeds):
        tell(f"{2 * len(design)} cuts of {len(names)} rules, seed {seed + 1} of {seeds}")
        rng = np.random.default_rng([seed, 2])
        lots = rng.permuted(drops, axis=0)
        is_real = ~is_real if seed % 2 else rng.permutation(len(names)) < len(names) / 2
        arms: Arms = {}
        for k, real in enumerate((is_real, ~is_real)):
            dropped = np.where(real, drops, lots)
            arms |= {f"{k} {run}": pool.raw[~dropped[:, on].any(1)] for run, on in enumerate(design)}
        if (least := min(map(len, arms.values()))) < 2 * FEWEST:
            raise PairmillError(f"with all of the rules {', '.join(names)} on, {least} raw pairs are left: too few.")
        found = recalls(pool, arms, {}, seed, least)
        values = np.array([[found[f"{k} {run}"][UNSEEN] for run in range(len(design))] for k in range(2)])
        first, second = cut_trials.main_effects(values, design)
        prices[seed] = np.where(is_real, first - second, second - first)
    if np.isnan(prices).any():
        raise PairmillError(f"a held-out set has fewer than {FEWEST} pairs; take a larger lake.")
    lines = []
    for n, name in enumerate(names):
        rows = pool.raw[~drops[:, n]]
        line = ProofLine(f"rule {name}", len(rows), len(np.unique(pool.kinds[rows[:, 0]])), UNSEEN, None)
        lines.append(_with(line, difference(prices[:, n].tolist())))
    return sorted(lines, key=lambda line: -(line.difference or 0.0))


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
            if arm != RAW:
                line = _with(line, against) if against else replace(line, verdict="too few to tell")
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
