"""Count a version's pictures of each concept in a list, and name the rule that drops most of the others."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.queries.gallery.gallery_query import Concept
from pairmill.catalog.queries.gallery.image_vectors import decided_vectors, sample_vectors, texts_of_pairs
from pairmill.catalog.recipe.plan import Check, quantities
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.scorer import model_of
from pairmill.ops.models.model_digest import model_digest
from pairmill.ops.pair.class_names import IMAGENET, class_names
from pairmill.ops.pair.tags import EmbedTexts, NamedPictures
from pairmill.ops.text.noun_phrases import NamedWords

VALUES = 10_000  # values remembered for each concept and rule, for the median


def concepts(lake: Lake, dataset: Dataset, names: Sequence[str], embed_texts: EmbedTexts) -> list[Concept]:
    """Count the pictures and texts of each name, kept and dropped; return a `Concept` for each, in the given order.

    A picture shows one name at most, and none if another word of the recipe's tag vocabulary, else of ImageNet's
    classes, is nearer (`ops.pair.tags`).

    Vectors and texts are read in batches. 30M pictures of 512 numbers and 2,000 names and words take some 20 minutes of
    matrix products and 10 of texts on one core; DuckDB's join of the vectors spills 40 GB to disk. Raises PairmillError
    if a name stands twice, or there are no vectors.
    """
    if len({name.casefold() for name in names}) < len(names):
        raise PairmillError("a name stands twice in the list; keep one of each.")
    seen = _seen(lake, dataset, names, embed_texts)
    find, texts = NamedWords(names), Counter[int]()
    for text in texts_of_pairs(lake, dataset):
        texts.update(find(text))
    columns = {check.name: _lower_bounded(check) for check in plan_of(lake, dataset).image_checks}
    return [_concept(name, seen[index], texts[index], columns) for index, name in enumerate(names)]


@dataclass
class _Seen:
    """Counts of pictures with a name: kept, dropped by rule, by one alone with values; ``sure`` sums chances."""

    kept: int = 0
    sure: float = 0.0
    dropped: Counter[str] = field(default_factory=Counter)
    alone: Counter[str] = field(default_factory=Counter)
    values: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, probability: float, dropped_by: str, value: str, is_alone: bool) -> None:
        """Count one picture: its probability, the rule that dropped it or '', its value, and if it fails no other."""
        self.sure += probability
        self.kept += not dropped_by
        if dropped_by:
            self.dropped[dropped_by] += 1
            self.alone[dropped_by] += is_alone
            if is_alone and len(self.values[dropped_by]) < VALUES:
                self.values[dropped_by].append(value)


def _seen(lake: Lake, dataset: Dataset, names: Sequence[str], embed_texts: EmbedTexts) -> dict[int, _Seen]:
    """Count the pictures that show each name, by the name's index."""
    sample = sample_vectors(lake, dataset)
    if not len(sample):
        raise PairmillError(f"{dataset} has no vectors of pictures; a run with a CLIP model makes them.")
    tags = plan_of(lake, dataset).recipe.tags
    own = tags.vocabulary if tags is not None and isinstance(tags.vocabulary, list) else []
    find, seen = NamedPictures(names, own or class_names(IMAGENET), embed_texts, sample), defaultdict[int, _Seen](_Seen)
    for vectors, rows in decided_vectors(lake, dataset):
        for name, probability, row in zip(*(each.tolist() for each in find(vectors)), rows, strict=True):
            if name >= 0:
                seen[name].add(probability, *row)
    return seen


def _lower_bounded(check: Check) -> str:
    """Return the one column that a rule bounds from below, '' for another kind of rule."""
    found = quantities(check, {})
    only = found[0] if len(found) == 1 and len(check.columns) == 1 else None
    return only.over if only and not only.under and only.low is not None and only.high is None else ""


def _concept(name: str, seen: _Seen, texts: int, columns: Mapping[str, str]) -> Concept:
    """Return the counts of one name, with the rule that drops most and a looser threshold for that rule."""
    n = seen.kept + seen.dropped.total()
    sure = round(seen.sure / n, 2) if n else None
    found = Concept(name, seen.kept, seen.dropped.total(), texts=texts, alone=0, back=0, sure=sure)
    if not seen.dropped:
        return found
    rule, n = min(seen.dropped.items(), key=lambda item: (-item[1], item[0]))
    found = replace(found, rule=rule, dropped_by_rule=n, alone=seen.alone[rule])
    prefix = f"{columns.get(rule)}="
    values = [each.removeprefix(prefix) for each in seen.values[rule] if each.startswith(prefix)]
    numbers = [float(each) for each in values if each != "NULL"]
    if not columns.get(rule) or not numbers:
        return found
    looser = median_low(numbers)
    return replace(found, looser=looser, back=sum(each >= looser for each in numbers))


def clip_of(lake: Lake, version: Dataset) -> EmbedTexts:
    """Return the text tower of a version's CLIP, whose weights load at the first call.

    Raises PairmillError if the version has no vectors of pictures, or the model's files did not make them.
    """
    from pairmill.ops.models.clip.clip import Clip  # 0.2 s

    plan = plan_of(lake, version)
    made_by = model_of(lake, plan.scorer("image_embedding"))
    if made_by is None:
        raise PairmillError(f"{version} has no vectors of pictures; a run with a CLIP model makes them.")
    spec = plan.recipe.models["clip"]
    if model_digest(spec) != made_by:
        raise PairmillError(
            f"model '{spec}' is not the one whose vectors {version} holds; put its files back, or run with the new one."
        )
    return Clip(spec, plan.recipe.clip.precision).embed_texts
