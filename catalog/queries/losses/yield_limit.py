"""Name the largest loss of pictures of a dataset version, and the command that reduces it."""

from collections.abc import Sequence

from pairmill.catalog.pending.quarantine import FaultCount
from pairmill.catalog.queries.datasets import FunnelStep

LEAST = 0.2  # the smallest share of all pictures whose loss is called a limit
_REMEDIES = {
    "readable": "they cannot be decoded: `pairmill quarantine` says why",
    "exact_duplicate": "they are copies: other sources add more than other rules",
    "duplicate": "they are near copies: other sources add more than other rules; `pairmill browse` shows the groups",
    "no_text": "no sentence is near enough: add pages with text, or describe the pictures by `pairmill recaption`",
    "max_uses": "other pictures use their sentences up: --set association.max_uses=none lets all share them",
    "left_out": "people left them out: `pairmill edit` lists who did, and undoes it",
    "balance": "their clusters are full: --set balance.cap=none keeps all",
}
_RULE = "`pairmill browse` shows them on both sides of the rule; --set images.{0}.keep=… moves it"


def yield_limit(steps: Sequence[FunnelStep], faults: Sequence[FaultCount]) -> str:
    """Return the sentence on the largest loss of pictures; it says that nothing limited the yield if none is large.

    ``steps`` is a version's funnel. ``faults`` counts the lake's items in quarantine, of which pictures that could not
    be fetched or read have no row in the funnel.
    """
    images = [step for step in steps if step.kind == "image"]
    if not images:
        return ""
    seen, kept = images[0].n_in, images[-1].n_in - images[-1].n_dropped
    rule = max(images, key=lambda step: step.n_dropped)
    failed = sum(each.items for each in faults)
    if failed > rule.n_dropped and failed >= LEAST * (failed + seen):
        worst = max(faults, key=lambda each: each.items)
        return (
            f"limited most by failures: {failed:,} items beside {seen:,} pictures, most of them by {worst.reason}; "
            f"`pairmill quarantine` lists them, `run --retry {worst.reason}` tries them again."
        )
    if rule.n_dropped < LEAST * seen or not rule.n_dropped:
        return f"nothing limited it: {kept:,} of {seen:,} pictures are in."
    remedy = _REMEDIES.get(rule.rule, _RULE.format(rule.rule))
    return f"limited most by {rule.rule}: {rule.n_dropped:,} of {seen:,} pictures; {remedy}."
