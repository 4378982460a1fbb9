"""Parse the values of command-line options; each raises ArgumentTypeError with the accepted form."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any


def _whole(least: int, most: int, wrong: str) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``least`` to ``most``; ``wrong`` ends the message for any other text."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"'{text}' is {wrong}")
        return int(text)

    return parse


def _positive(below: float, wrong: str, read: Callable[[str], float] = float) -> Callable[[str], float]:
    """Return a parser of numbers above 0 and below ``below``; ``wrong`` ends the message for any other text."""

    def parse(text: str) -> float:
        try:
            found = read(text)
        except ValueError:
            found = 0.0
        if not 0 < found < below:
            raise argparse.ArgumentTypeError(f"'{text}' is {wrong}")
        return found

    return parse


def _from_0(wrong: str) -> Callable[[str], float]:
    """Return a parser of finite numbers of at least 0. Its error for any other text ends with ``wrong``."""
    above = _positive(float("inf"), wrong)
    return lambda text: 0.0 if text.strip() in ("0", "0.0") else above(text)


def _percent(text: str) -> float:
    """Read '5%', 'at most 5%' or '0.05'."""
    said = text.strip().removeprefix("at most ").strip()
    return float(said.removesuffix("%")) / (100 if said.endswith("%") else 1)


worker_count = _whole(0, 999_999, "not a number of workers; give 0 (one per CPU) or more")
above_0 = _whole(1, 65_535, "no such number; give one from 1 to 65535")
from_0 = _whole(0, 999_999_999, "no such number; give a whole number, 0 or more")
pair_count = _whole(1, 999_999_999, "no number of pairs; give 1 or more")
sample_size = _whole(50, 5_000, "no size of a sample; give 50 to 5000 pictures")
cost = _positive(float("inf"), "no sum; give one above 0, such as 25")
amount = _positive(float("inf"), "no number above 0; give one such as 8 or 0.5")
minutes = _from_0("no number of minutes; give 0 or more")
share = _positive(1.0, "no share between 0 and 1; give one such as 5%", _percent)


def numbers(text: str) -> list[float]:
    """Parse finite numbers separated by commas, such as '0.2,0.22'."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(abs(each) < float("inf") for each in found):
        raise argparse.ArgumentTypeError(f"'{text}' are no numbers; give them as 0.2,0.22,0.24")
    return found


def network(text: str) -> str:
    """Parse an IP network in CIDR notation; return it in canonical form."""
    from ipaddress import ip_network

    try:
        return str(ip_network(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; give a network such as 10.1.0.0/16") from None


def model_sizes(text: str) -> tuple[str, Any]:
    """Parse a model's resources, such as 'clip:gpus=0.25', to (name, `ModelSize`)."""
    from pairmill.flows.run.model_size import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def overrides(assignments: list[str], packs: Sequence[str] = ()) -> dict[str, str]:
    """Parse the values of ``--set``, 'dotted.key=value', to a dict; the last of equal keys wins. Raises BadRecipe.

    The rules of ``packs``, the values of ``--with``, come first.
    """
    from pairmill.catalog.terms.error import BadRecipe  # --help needs nothing of the catalog

    found = {}
    if packs:
        from pairmill.catalog.recipe.rule_packs import pack_overrides
        from pairmill.flows.run.settings import RECIPES

        found = pack_overrides(packs, RECIPES / "packs")
    for each in assignments:
        key, equals, value = each.partition("=")
        if not equals or not key.strip("."):
            raise BadRecipe(f"--set {each}: write it as dotted.key=value, such as --set balance.cap=20.")
        found[key] = value
    return found
