"""Two recipes that take turns on one lake, each with other texts for the same pictures and the same scorer."""

from pathlib import Path

import pytest

from pairmill.catalog.cut import late_cut
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.answer_cache import split_by_cached_answer
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_fusion
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import validate
from pairmill.catalog.write import lease
from pairmill.catalog.write.lease import Writer
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.backends import VisionLanguageModel
from pairmill.tasks.generate.fusion import FuseTexts
from pairmill.tasks.generate.generative_job import Queries, RewriteCachedAnswers
from pairmill.tasks.run.items.partition import Output, write_parts
from tests.worlds.published import IMAGE_RULES, plan_of, published

FUSE = {"prompt": "{caption} {sentence}", "max_tokens": 4, "side": 64, "precision": "fp32"}
SHORT, LONG = "n_words <= 6", "n_words > 6"


def plan(sentences: str) -> Plan:
    base, _ = plan_of(3, IMAGE_RULES, captions=True, tags=True)
    content = base.recipe.model_dump() | {"fuse": FUSE, "sentences": [{"name": "length", "keep": sentences}]}
    return compile_plan(validate(content, "small"), {**base.scorers, "synthetic": "fused"})


def pending(writer: Writer, rule: str) -> list[WorkItem]:
    cut(writer.lake, plan(rule))
    late_cut.select_wave(writer.lake, plan(rule), 1)
    return [item for items in pending_fusion(writer.lake, plan(rule)) for item in items]


def fuse(writer: Writer, rule: str, model: str) -> None:
    ask = Queries(VisionLanguageModel(model), Decode(side=64), 4, FUSE["prompt"])
    job = FuseTexts(ask, FUSE["prompt"], "fused")
    output = Output(writer.lake.data_path, "run-2", writer.begin("fuse"))
    for item in pending(writer, rule):
        told, asked = split_by_cached_answer(item)
        for part, made_by in ((item.only(told), RewriteCachedAnswers(job)), (item.only(asked), job)):
            if part.keys:
                writer.commit(write_parts(made_by(part), part, output))


def current(writer: Writer, rule: str) -> dict[str, tuple[str, str]]:
    rows = writer.lake.query(
        f"SELECT sha256, prompt, synthetic_text FROM {current_scores(plan(rule), 'synthetic', 'sha256')}"
    )
    return {sha256: (prompt, text) for sha256, prompt, text in rows}


@pytest.mark.slow
def test_each_gets_the_texts_made_for_it_and_none_is_made_twice(tmp_path: Path):
    published(tmp_path / "lake")
    with create_or_open(tmp_path / "lake") as lake, lease.writing(lake, "run-2", "test") as writer:
        made = {}
        for rule in (SHORT, LONG):
            fuse(writer, rule, "hf:infra/demo/models/captioner")
            made[rule] = current(writer, rule)
        assert made[SHORT].keys() == made[LONG].keys() and len(made[SHORT]) == 6
        assert all(made[SHORT][key][0] != made[LONG][key][0] for key in made[SHORT])
        for rule in (SHORT, LONG, SHORT):
            assert pending(writer, rule)
            fuse(writer, rule, "hf:nowhere")  # a model that is asked would be looked for
            assert current(writer, rule) == made[rule]
            assert not pending(writer, rule)
        assert lake.query("SELECT count(*) FROM synthetic") == [(5 * 6,)]


@pytest.mark.parametrize("before", [-1, 7])
def test_what_is_to_be_replaced_is_part_of_what_an_item_asks_for(before: int):
    first, again = ({"input_digests": ("d",), "before": [commit]} for commit in (before, before + 1))
    assert WorkItem("s", ("k",), inputs=first).digest != WorkItem("s", ("k",), inputs=again).digest
