"""Find what a generative model answered before to the same questions, so that it is not asked twice.

A rule that judges texts (an empty one, a refusal) belongs to a scorer's identity, since it decides a column. But no
model need say again what it said: its answers are stored, and are judged anew in minutes where to ask again takes weeks
of a GPU.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.write.scorer import Scorer

# Settings of a scorer that judge an answer, and do not make it.
JUDGING_SETTINGS = ("status", "unsupported")
CAPTION = ("text", "status", "n_tokens", "seconds", "finish_reason", "prompt_tokens", "retries")


def same_request_scorers(lake: Lake, scorer: Scorer) -> list[str]:
    """List the digests of the scorers in the lake whose model is asked as this one's is, its own included.

    What they were made from is not compared: a row's input digest holds it.
    """
    same = "SELECT digest, settings FROM scorers WHERE name = ? AND version = ? AND model = ?"
    found = lake.query(same, (scorer.name, scorer.version, scorer.model))
    asked = _request_settings(json.loads(scorer.settings_json()))
    return sorted(
        {scorer.digest, *(digest for digest, settings in found if _request_settings(json.loads(settings)) == asked)}
    )


def _request_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in JUDGING_SETTINGS}


def with_cached_captions(
    lake: Lake, rounds: Iterable[Sequence[WorkItem]], alike: Sequence[str]
) -> Iterator[list[WorkItem]]:
    """Add to the items of each round, as ``known``, captions of the scorers ``alike``: None where there is none."""
    row = ", ".join(f"'{name}': {name}" for name in CAPTION)
    by = ", ".join(f"'{digest}'" for digest in alike)
    sql = f"""SELECT sha256, arg_max({{{row}}}, "commit") FROM captions WHERE scorer IN ({by})
        AND sha256 IN (SELECT unnest(?::VARCHAR[])) GROUP BY sha256"""
    for items in rounds:
        keys = [key for item in items for key in item.keys]
        known = dict(lake.query(sql, (keys,))) if len(alike) > 1 and keys else {}
        yield [_with(item, known) for item in items]


def _with(item: WorkItem, known: Mapping[str, Any]) -> WorkItem:
    found = [known.get(key) for key in item.keys]
    return replace(item, inputs=item.inputs | {"known": found}) if any(found) else item


def split_by_cached_answer(item: WorkItem) -> tuple[list[str], list[str]]:
    """Part an item's keys: those whose answer is ``known``, and those to be asked."""
    known = item.inputs.get("known") or [None] * len(item.keys)
    pairs = list(zip(item.keys, known, strict=True))
    return [key for key, answer in pairs if answer], [key for key, answer in pairs if not answer]
