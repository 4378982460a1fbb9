"""Find cached answers of generative models to the same requests, so that no model is asked twice.

A rule that judges texts (empty, a refusal) is part of a scorer's identity because it determines a column. But the model
need not answer again: rules on stored answers take minutes, new answers take weeks of a GPU.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.write.scorer import Scorer

# Settings of a scorer that judge an answer but do not change it.
JUDGING_SETTINGS = ("status", "unsupported")
# The setting of a captioner that says how pictures are shown; absent for the model's own way.
PICTURES = "processor"
CAPTION = ("text", "status", "n_tokens", "seconds", "finish_reason", "prompt_tokens", "retries")


def same_request_scorers(lake: Lake, scorer: Scorer) -> list[str]:
    """Return the digests of the scorers whose stored answers this scorer can reuse, its own among them.

    Their model gets the same request. The scorers of their inputs are not compared: each row has a digest of its input.
    """
    asked = _request_settings(scorer.settings_json())
    return sorted({scorer.digest, *(each for each, told in _requests_to_model(lake, scorer).items() if told == asked)})


@dataclass(frozen=True)
class OtherCaptions:
    """``n`` captions by the same model and prompt, but from pictures prepared with the other settings ``processor``.

    ``seconds`` is the mean generation time of a caption; ``processor`` is {} for the model's own settings.
    """

    n: int
    seconds: float
    processor: dict[str, int]


def captions_by_other_pictures(lake: Lake, scorer: Scorer) -> OtherCaptions | None:
    """Return the largest group of captions that this scorer could reuse but for other settings of picture preparation.

    None if there are no such captions, or if this scorer has more of its own.
    """
    asked = _request_settings(scorer.settings_json())
    mine = asked.pop(PICTURES, {})
    others: dict[str, dict[str, int]] = {}
    for digest, told in _requests_to_model(lake, scorer).items():
        pictures = told.pop(PICTURES, {})
        if told == asked and pictures != mine:
            others[digest] = pictures
    if not others:
        return None
    among = ", ".join(f"'{digest}'" for digest in (*others, scorer.digest))
    counts = f"SELECT scorer, count(DISTINCT sha256) AS n, avg(seconds) FROM captions WHERE scorer IN ({among})"
    rows = lake.query(f"{counts} GROUP BY scorer ORDER BY n DESC, scorer LIMIT 1")
    if not rows or rows[0][0] == scorer.digest:
        return None
    digest, n, seconds = rows[0]
    return OtherCaptions(n, seconds, others[digest])


def _requests_to_model(lake: Lake, scorer: Scorer) -> dict[str, dict[str, Any]]:
    """Return digest -> `_request_settings` of the lake's scorers of the same name, version and model."""
    sql = "SELECT digest, settings FROM scorers WHERE name = ? AND version = ? AND model = ?"
    found = lake.query(sql, (scorer.name, scorer.version, scorer.model))
    return {digest: _request_settings(settings) for digest, settings in found}


def _request_settings(settings: str) -> dict[str, Any]:
    """Return the settings (JSON) of a scorer that determine the request to the model."""
    return {name: value for name, value in json.loads(settings).items() if name not in JUDGING_SETTINGS}


def with_cached_captions(
    lake: Lake, rounds: Iterable[Sequence[WorkItem]], alike: Sequence[str]
) -> Iterator[list[WorkItem]]:
    """Add cached captions of the scorers ``alike`` to each item, as input ``known``: one dictionary or None per key.

    Yields the items round by round.
    """
    row = ", ".join(f"'{name}': {name}" for name in CAPTION)
    by = ", ".join(f"'{digest}'" for digest in alike)
    sql = f"""SELECT sha256, arg_max({{{row}}}, "commit") FROM captions WHERE scorer IN ({by})
        AND sha256 IN (SELECT unnest(?::VARCHAR[])) GROUP BY sha256"""
    for items in rounds:
        keys = [key for item in items for key in item.keys]
        known = dict(lake.query(sql, (keys,))) if len(alike) > 1 and keys else {}
        yield [_with(item, known) for item in items]


def _with(item: WorkItem, known: Mapping[str, Any]) -> WorkItem:
    """Return the item with its cached answers as input ``known``, if there are any."""
    found = [known.get(key) for key in item.keys]
    return replace(item, inputs=item.inputs | {"known": found}) if any(found) else item


def split_by_cached_answer(item: WorkItem) -> tuple[list[str], list[str]]:
    """Split an item's keys into those with a cached answer (``known``) and those without."""
    pairs = list(zip(item.keys, item.inputs.get("known") or [None] * len(item.keys), strict=True))
    return [key for key, answer in pairs if answer], [key for key, answer in pairs if not answer]
