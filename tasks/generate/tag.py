"""Tag: label the pictures that a wave asks for with words of a vocabulary by CLIP zero-shot, from stored vectors."""

from dataclasses import dataclass, replace
from typing import ClassVar

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.pending_texts import pending_in_wave
from pairmill.catalog.pending.tag_words import Vocabulary
from pairmill.catalog.recipe.parts import Tags
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING, TAGS
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.pair.tags import ZeroShotTags
from pairmill.tasks.generate.vocabulary import known_vocabulary, vocabulary
from pairmill.tasks.measure.score_images import ScoreImages
from pairmill.tasks.run.identity import Bound, decoder, embedder, tagger, tagger_name
from pairmill.tasks.run.partition import Part
from pairmill.tasks.run.rows import read_rows, score_rows, to_vectors
from pairmill.tasks.run.session import Session

EMBED = "embed pictures for tags"


def select_tags(session: Session) -> None:
    """Have the plan read tags by the recipe's scorer of them, once its words are known."""
    tags = session.recipe.tags
    if tags is None:
        return
    plan = _tagger_plan(session)[0]
    words = known_vocabulary(session, plan)
    if words is not None:
        session.use(TAGS.table, _scorer(tags, words, _model(tags, words), plan))


def tag(session: Session) -> None:
    """Tag the wave's pictures with words of the recipe's vocabulary, and of the corpus where it asks for them."""
    tags = session.recipe.tags
    if tags is None:
        return
    plan = _with_vectors(session)
    words = vocabulary(session, plan)
    if words is None:
        return
    model = _model(tags, words)
    digest = session.use(TAGS.table, _scorer(tags, words, model, plan))
    items = pending_in_wave(session.lake, plan, TAGS.table, digest, IMAGE_EMBEDDING.table)
    session.work_rounds(
        TAGS.step, items, TagPictures(model, tagger(session.recipe), digest, tagger_name(session.recipe))
    )


def _model(tags: Tags, words: Vocabulary) -> ZeroShotTags:
    return ZeroShotTags(words.words, tags.template, tags.top_k, words.thresholds)


def _tagger_plan(session: Session) -> tuple[Plan, Bound | None]:
    """Return a plan that reads the tagger's vectors of pictures, and what makes them where the tagger is not the
    recipe's CLIP; the scorer of these is registered with what is made by it."""
    if "tagger" not in session.recipe.models:
        return session.plan, None
    bound, scorer = embedder(session.plan, session.recipe.models["tagger"])
    session.register_later([scorer])
    return session.plan.with_scorer(IMAGE_EMBEDDING.table, scorer.digest), bound


def _with_vectors(session: Session) -> Plan:
    """Return a plan that reads the tagger's vectors of the wave's pictures, which are made now where they lack."""
    plan, bound = _tagger_plan(session)
    if bound is not None:
        job = ScoreImages(decoder(session.recipe), (bound,))
        rounds = pending_in_wave(session.lake, plan, IMAGE_EMBEDDING.table, bound.digest)
        tables = (IMAGE_EMBEDDING.table,)
        session.work_rounds(EMBED, ([replace(item, tables=tables) for item in items] for items in rounds), job)
    return plan


def _scorer(tags: Tags, words: Vocabulary, model: ZeroShotTags, plan: Plan) -> Scorer:
    settings = {"template": tags.template, "top_k": tags.top_k}
    if not words.digest:
        settings |= {"vocabulary": tags.vocabulary}
    made_from = tuple(plan.scorer(name) for name in TAGS.made_from)
    return Scorer(TAGS.name, TAGS.table, model.version, settings, words.digest, made_from)


@dataclass(frozen=True)
class TagPictures:
    """A job: label image vectors of one shard, to ``tags``. ``model`` is the recipe's name of the one that does."""

    stage: ClassVar[str] = TAGS.step

    zero_shot: ZeroShotTags
    clip: Clip
    scorer: str
    model: str

    def __call__(self, item: WorkItem) -> list[Part]:
        rows = read_rows(item, ["sha256", "image_vector"], "sha256")
        seen = rows.filter(rows["image_vector"].is_valid())  # none: it was quarantined when the tagger was to see it
        words, similarities = self.zero_shot(to_vectors(seen["image_vector"]), self.clip.embed_texts)
        unseen = rows.filter(rows["image_vector"].is_null())["sha256"].to_pylist()
        nothing = [None] * len(unseen)
        values = {"tags": [*words, *nothing], "tag_similarities": [*similarities, *nothing]}
        return [Part("tags", score_rows(TAGS, [*seen["sha256"].to_pylist(), *unseen], values), self.scorer)]

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows of NULLs for pictures that kill their worker: without a row a picture would be asked for again."""
        return [Part("tags", score_rows(TAGS, list(item.keys), {}), self.scorer)]
