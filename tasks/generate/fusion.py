"""Fuse an image's caption, tags and best sentence into one text, and score by CLIP how well it fits."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from pairmill.catalog.cut.late_cut import judge
from pairmill.catalog.pending.answer_cache import same_request_scorers
from pairmill.catalog.pending.generated import without_unset_thresholds
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_fusion
from pairmill.catalog.terms.scores import SYNTHETIC, SYNTHETIC_SIMILARITY
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.models.generation import Answering, Generation
from pairmill.ops.pair.fuse import fuse_prompt, instructions
from pairmill.ops.text.unsupported import count_unsupported
from pairmill.tasks.generate.endpoints import generate_in_rounds
from pairmill.tasks.generate.generative_job import GenerativeJob, Queries, decoder_of_side, generated_columns
from pairmill.tasks.measure.score_pairs import score_generated, score_texts, text_similarity_scorer
from pairmill.tasks.run.place.identity import fuse_scorer, fuser
from pairmill.tasks.run.session import Session

# Inputs of typical length, to fit the batch size: a caption of 40 words, five tags, a sentence of 25 words.
EXAMPLE = ("word " * 40, ["tag"] * 5, "word " * 25)


def select_fusion(session: Session) -> None:
    """Restrict the plan to fused texts and similarities by the recipe's scorers, once the scorer of tags is known."""
    recipe, plan = session.recipe, session.plan
    if recipe.fuse is None or (recipe.tags is not None and not plan.scorer("tags")):
        return
    session.use(SYNTHETIC.table, _scorer(session))
    if plan.computes(SYNTHETIC_SIMILARITY.table):
        session.use(SYNTHETIC_SIMILARITY.table, text_similarity_scorer(session.plan, SYNTHETIC_SIMILARITY))


def _scorer(session: Session) -> Scorer:
    """Return the scorer of the fused text.

    Where the recipe chooses among several captioners, only the chosen text counts, through each row's input digest:
    adding a captioner renews only the fused texts of images whose caption changes.
    """
    plan = session.plan
    tables = [name for name in SYNTHETIC.made_from if not (name == "captions" and plan.chooses_captions)]
    return fuse_scorer(plan.recipe, tuple(scorer for name in tables for scorer in plan.made_by(name)))


def fuse(session: Session) -> None:
    """Fuse caption, tags and best sentence of the wave's images into one text each.

    Skips images that fail a rule on their caption.
    """
    settings = session.recipe.fuse
    if settings is None:
        return
    select_fusion(session)
    judge(session.lake, without_unset_thresholds(session.plan))
    scorer = _scorer(session)
    model, decode = fuser(session.recipe), decoder_of_side(session.recipe, settings.side)
    example = fuse_prompt(settings.prompt, *EXAMPLE)

    def job(model: Answering) -> "FuseTexts":
        ask = Queries(model, decode if model.shows_images else None, settings.max_tokens, example)
        return FuseTexts(ask, settings.prompt, scorer.digest, settings.model)

    items = pending_fusion(session.lake, session.plan, same_request_scorers(session.lake, scorer))
    generate_in_rounds(session, SYNTHETIC.step, items, model, job)
    if session.plan.computes(SYNTHETIC_SIMILARITY.table):
        score_texts(session, session.plan, SYNTHETIC_SIMILARITY, SYNTHETIC.table, "synthetic_text")
    score_generated(session, SYNTHETIC.table)


@dataclass(frozen=True)
class FuseTexts(GenerativeJob):
    """Model job: fuse the caption, tags and best sentence of images of one shard into ``synthetic``."""

    stage: ClassVar[str] = SYNTHETIC.step
    table: ClassVar[str] = SYNTHETIC.table

    model: str = "fuser"

    def prompts(self, item: WorkItem) -> dict[str, str]:
        """Fill the prompt template with each image's caption, tags and sentence; return prompts by sha256."""
        texts = zip(*(item.inputs[name] for name in ("captions", "tags", "sentences")), strict=True)
        return {sha: fuse_prompt(self.prompt, *each) for sha, each in zip(item.keys, texts, strict=True)}

    def rows(self, item: WorkItem, found: dict[str, Generation]) -> pa.Table:
        """Convert answers by sha256 to rows of ``synthetic``.

        ``synthetic_unsupported`` counts the numbers and quotations of a text that its caption, tags and sentence lack.
        """
        prompts = self.prompts(item)
        digests = dict(zip(item.keys, item.inputs["input_digests"], strict=True))
        texts = zip(*(item.inputs[name] for name in ("captions", "tags", "sentences")), strict=True)
        sources = {sha: (caption, *tags, text) for sha, (caption, tags, text) in zip(item.keys, texts, strict=True)}
        lacking = [count_unsupported(answer.text, sources[sha]) for sha, answer in found.items()]
        rows = {
            "sha256": pa.array(found, pa.string()),
            "input_digest": pa.array([digests[sha] for sha in found], pa.string()),
            "prompt": pa.array([prompts[sha] for sha in found], pa.string()),
            **generated_columns(list(found.values()), "synthetic_text", "synthetic_status", instructions(self.prompt)),
            "synthetic_unsupported": pa.array(lacking, pa.int32()),
        }
        return pa.table(rows)
