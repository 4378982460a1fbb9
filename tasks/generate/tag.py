"""Tag the images of a wave with words of a vocabulary, by CLIP zero-shot classification of stored vectors."""

from dataclasses import dataclass, replace
from typing import ClassVar

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.word_counts import Vocabulary
from pairmill.catalog.pending.worklist import pending_in_wave
from pairmill.catalog.recipe.parts_of_texts import Tags
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING, TAGS
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.pair.tags import ZeroShotTags
from pairmill.tasks.generate.vocabulary import vocabulary
from pairmill.tasks.measure.score_contents import ScoreImages
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import read_rows, score_rows, to_vectors
from pairmill.tasks.run.place.identity import Bound, decoder, embedder, tagger, tagger_name
from pairmill.tasks.run.session import Session

EMBED = "embed pictures for tags"


def select_tags(session: Session) -> None:
    """Restrict the plan to tags by the recipe's scorer, once the tag words are known."""
    tags = session.recipe.tags
    if tags is None:
        return
    plan = _tagger_plan(session)[0]
    if words := vocabulary(session, plan, tags, trains=False):
        _use(session, plan, tags, words)


def tag(session: Session) -> None:
    """Tag the wave's images with the recipe's words, and with mined words if the recipe asks for them."""
    tags = session.recipe.tags
    if tags is None:
        return
    plan = _with_vectors(session)
    words = vocabulary(session, plan, tags, trains=True)
    if words is None:
        return
    model, digest = _use(session, plan, tags, words)
    items = pending_in_wave(session.lake, plan, TAGS.table, digest, of_vectors=True)
    job = TagPictures(model, tagger(session.recipe), digest, tagger_name(session.recipe))
    session.work_rounds(TAGS.step, items, job)


def _use(session: Session, plan: Plan, tags: Tags, words: Vocabulary) -> tuple[ZeroShotTags, str]:
    """Restrict the plan to tags by these words; return their zero-shot classifier and the scorer's digest."""
    model = ZeroShotTags(words.words, tags.template, tags.top_k, words.thresholds)
    settings = {"template": tags.template, "top_k": tags.top_k}
    if not words.digest:
        settings |= {"vocabulary": tags.vocabulary}
    made_from = tuple(plan.scorer(name) for name in TAGS.made_from)
    scorer = Scorer(TAGS.name, TAGS.table, model.version, settings, words.digest, made_from)
    return model, session.use(TAGS.table, scorer)


def _tagger_plan(session: Session) -> tuple[Plan, Bound | None]:
    """Return a plan that reads the tagger's vectors, and the embedding to register if the tagger is not the CLIP."""
    if "tagger" not in session.recipe.models:
        return session.plan, None
    bound, scorer = embedder(session.plan, session.recipe.models["tagger"])
    session.register_later([scorer])
    return session.plan.with_scorer(IMAGE_EMBEDDING.table, scorer.digest), bound


def _with_vectors(session: Session) -> Plan:
    """Return a plan that reads the tagger's vectors of the wave's images, after computing missing ones."""
    plan, bound = _tagger_plan(session)
    if bound is not None:
        job = ScoreImages((bound,), decoder(session.recipe))
        rounds = pending_in_wave(session.lake, plan, IMAGE_EMBEDDING.table, bound.digest)
        tables = (IMAGE_EMBEDDING.table,)
        session.work_rounds(EMBED, ([replace(item, tables=tables) for item in items] for items in rounds), job)
    return plan


@dataclass(frozen=True)
class TagPictures:
    """Job: tag the images of one shard by their vectors, into ``tags``.

    ``model`` is the recipe's name of the tagger.
    """

    stage: ClassVar[str] = TAGS.step
    unit: ClassVar[str] = "pictures"

    zero_shot: ZeroShotTags
    clip: Clip
    scorer: str
    model: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Tag the images of one item; return rows of ``tags``, NULLs for images without a vector."""
        rows = read_rows(item, ["sha256", "image_vector"], "sha256")
        seen = rows.filter(rows["image_vector"].is_valid())  # NULL: the image was quarantined by the tagger's embedding
        words, similarities = self.zero_shot(to_vectors(seen["image_vector"]), self.clip.embed_texts)
        unseen = rows.filter(rows["image_vector"].is_null())["sha256"].to_pylist()
        nothing = [None] * len(unseen)
        values = {"tags": [*words, *nothing], "tag_similarities": [*similarities, *nothing]}
        return [Part("tags", score_rows(TAGS, [*seen["sha256"].to_pylist(), *unseen], values), self.scorer)]

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows of NULLs for images that kill their worker: without a row they would stay pending."""
        return [Part("tags", score_rows(TAGS, list(item.keys), {}), self.scorer)]
