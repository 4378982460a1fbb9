"""Fuse: make one text of a picture's caption, tags and best sentence, and score by CLIP how well it fits."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from catalog.cut.late import judge
from catalog.pending.by_text import pending_fusion
from catalog.pending.generated import settled
from catalog.pending.item import WorkItem
from catalog.terms.scores import SYNTHETIC, SYNTHETIC_SIMILARITY
from ops.image.decode import Decode
from ops.models.language_model import LanguageModel
from ops.models.vlm import VisionLanguageModel
from ops.pair.fuse import fuse_prompt
from tasks.answers import answers, empty_answers, generated_columns, quarantine_parts, shown, text_answers
from tasks.run.identity import fuse_scorer, fuser
from tasks.run.session import Session
from tasks.run.stage import Part
from tasks.text_similarity import score_texts, use_text_similarity


def use_fusion(session: Session) -> None:
    """Have the plan read fused texts, and their similarities, by the recipe's scorers of them, once it is known what
    they are made from."""
    recipe, plan = session.recipe, session.plan
    if recipe.fuse is None or (recipe.tags is not None and not plan.scorer("tags")):
        return
    session.use(SYNTHETIC.table, fuse_scorer(recipe, tuple(plan.scorer(name) for name in SYNTHETIC.made_from)))
    use_text_similarity(session, SYNTHETIC_SIMILARITY)


def fuse(session: Session) -> None:
    """Fuse caption, tags and the best real sentence of the wave's pictures into one text, but of those that fall by a
    rule on their caption."""
    settings = session.recipe.fuse
    if settings is None:
        return
    use_fusion(session)
    judge(session.lake, settled(session.plan))
    digest = session.plan.scorer(SYNTHETIC.table)
    decode = shown(session.recipe, settings.side)
    job = FuseTexts(fuser(session.recipe), decode, settings.prompt, settings.max_tokens, digest)
    session.work_rounds(SYNTHETIC.step, pending_fusion(session.lake, session.plan), job)
    score_texts(session, SYNTHETIC_SIMILARITY, SYNTHETIC.table, "synthetic_text")


@dataclass(frozen=True)
class FuseTexts:
    """A job: fuse texts of one shard's pictures, to ``synthetic``; what was answered before is not asked again."""

    stage: ClassVar[str] = SYNTHETIC.step

    model: VisionLanguageModel | LanguageModel
    decode: Decode
    prompt: str
    max_tokens: int
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        known = [key for key, answer in zip(item.keys, item.inputs["known"], strict=True) if answer]
        asked = [key for key in item.keys if key not in set(known)]
        return [*self._recalled(item.only(known)), *(self._asked(item.only(asked)) if asked else ())]

    def _recalled(self, item: WorkItem) -> list[Part]:
        keys = zip(item.keys, item.inputs["input_digests"], item.inputs["known"], strict=True)
        rows = [{"sha256": key, "input_digest": digest, **answer} for key, digest, answer in keys]
        return [Part("synthetic", pa.Table.from_pylist(rows), self.scorer)] if rows else []

    def _asked(self, item: WorkItem) -> list[Part]:
        texts = dict(
            zip(
                item.keys,
                zip(*(item.inputs[name] for name in ("captions", "tags", "sentences")), strict=True),
                strict=True,
            )
        )
        digests = dict(zip(item.keys, item.inputs["input_digests"], strict=True))
        prompts = {sha: fuse_prompt(self.prompt, *texts[sha]) for sha in texts}
        if isinstance(self.model, LanguageModel):
            found, bad = text_answers(prompts, self.model, self.max_tokens)
        else:
            found, bad = answers(item, prompts, self.decode, self.model, self.max_tokens)
        rows = {
            "sha256": pa.array(found, pa.string()),
            "input_digest": pa.array([digests[sha] for sha in found], pa.string()),
            "prompt": pa.array([prompts[sha] for sha in found], pa.string()),
            **generated_columns(list(found.values()), "synthetic_text", "synthetic_status"),
        }
        return [Part("synthetic", pa.table(rows), self.scorer), *quarantine_parts(bad, SYNTHETIC.step)]

    def poisoned(self, item: WorkItem) -> list[Part]:
        same = {"input_digest": list(item.inputs["input_digests"]), "prompt": [self.prompt] * len(item.keys)}
        return empty_answers("synthetic", item, "synthetic_text", "synthetic_status", self.scorer, **same)
