"""Texts are judged by rules that change; what a model said is then judged again, and the model is not asked."""

from pathlib import Path

import pytest

from pairmill.catalog.pending.answer_cache import same_request_scorers
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.write import lease
from pairmill.catalog.write.scorer import Scorer, register
from pairmill.ops.text import generation_status
from pairmill.tasks.generate.generative_job import RewriteCachedAnswers
from tests.worlds.jobs import CAPTIONS, FUSED
from tests.worlds.line import curate, rows
from tests.worlds.shared import opened_new

CAPTIONED = "SELECT sha256, captioner, prompt, text, status, n_tokens, finish_reason, seconds FROM captions"
FUSED_TEXTS = (
    "SELECT sha256, input_digest, prompt, synthetic_text, synthetic_status, synthetic_unsupported FROM synthetic"
)
ANSWER = {"n_tokens": 7, "seconds": 0.5, "finish_reason": "stop", "prompt_tokens": 90, "retries": 1}
NEWEST = 'WHERE "commit" > {} ORDER BY ALL'


@pytest.mark.slow
def test_a_later_rule_for_statuses_judges_what_was_said_and_asks_no_model(
    curated_copy: Path, pages: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    before = {sql: rows(curated_copy, f"{sql} ORDER BY ALL") for sql in (CAPTIONED, FUSED_TEXTS)}
    (commit,), *_ = rows(curated_copy, 'SELECT max("commit") FROM commits')
    asked = rows(curated_copy, "SELECT count(*), sum(rows) FROM usage")
    monkeypatch.setattr(generation_status, "VERSION", generation_status.VERSION + 1)
    _, counts = curate(curated_copy, pages, settings=settings)
    assert counts["caption main, told before"] and counts["fuse, told before"]
    assert not counts["caption main"] and not counts["fuse"]
    assert rows(curated_copy, "SELECT count(*), sum(rows) FROM usage") == asked, "no token was made"
    for sql, made in before.items():
        assert len(made) > 20 and rows(curated_copy, f"{sql} {NEWEST.format(commit)}") == made
    assert rows(curated_copy, "SELECT count(DISTINCT content_digest) FROM datasets") == [(1,)]
    _, again = curate(curated_copy, pages, settings=settings)
    assert not any("told before" in step for step in again)


def test_those_ask_alike_that_differ_in_how_they_judge_alone(tmp_path: Path):
    settings = {"prompt": "Describe.", "max_tokens": 8}
    mine = Scorer("caption", "captions", 1, settings | {"status": 3}, "weights")
    alike = [Scorer("caption", "captions", 1, settings | judges, "weights") for judges in ({}, {"status": 2})]
    alike.append(Scorer("caption", "captions", 1, settings | {"unsupported": 2}, "weights", ("other",)))
    others = [
        Scorer("caption", "captions", 1, settings | {"max_tokens": 9}, "weights"),
        Scorer("caption", "captions", 1, settings, "other weights"),
        Scorer("caption", "captions", 2, settings, "weights"),
        Scorer("fuse", "synthetic", 1, settings, "weights"),
    ]
    with opened_new(tmp_path / "lake") as lake, lease.writing(lake, "run", "test"):
        assert same_request_scorers(lake, mine) == [mine.digest]
        register(lake, [(scorer, 1) for scorer in (*alike, *others)])
        assert same_request_scorers(lake, mine) == sorted(each.digest for each in (mine, *alike))


def test_what_was_said_is_judged_by_the_rules_of_today_and_of_no_other_prompt():
    item = WorkItem("shard", ("a", "b", "c"), inputs={"known": [
        ANSWER | {"text": "I'm sorry, but I can't help with that image.", "status": "ok"},
        ANSWER | {"text": "A dog.", "status": "refusal"},
        ANSWER | dict.fromkeys(("finish_reason", "prompt_tokens", "retries")) | {"text": "A cat", "status": "cut_off"},
    ]})  # fmt: skip
    (part,) = RewriteCachedAnswers(CAPTIONS)(item)
    assert (part.table, part.scorer, part.usage) == ("captions", "c", None)
    assert part.rows["status"].to_pylist() == ["refusal", "ok", "cut_off"]
    assert part.rows["finish_reason"].to_pylist() == ["stop", "stop", "length"]
    assert part.rows["prompt_tokens"].to_pylist() == [90, 90, 0] and part.rows["n_tokens"].to_pylist() == [7] * 3


def test_what_no_source_of_a_fused_text_says_is_counted_again():
    known = ANSWER | {"synthetic_text": "7 dogs and 40 cats.", "synthetic_status": "ok", "synthetic_unsupported": 0}
    sources = {"captions": ["Dogs."], "tags": [["dog"]], "sentences": ["A dog ran."], "input_digests": ["d"]}
    (part,) = RewriteCachedAnswers(FUSED)(WorkItem("shard", ("a",), inputs={"known": [known]} | sources))
    (row,) = part.rows.to_pylist()
    assert (row["input_digest"], row["prompt"], row["synthetic_unsupported"]) == ("d", "Combine Dogs.", 2)
