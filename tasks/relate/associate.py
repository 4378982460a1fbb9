"""Find the nearest sentences of each image in the clusters that it probes, and score the best by CLIP.

Runs range by range of sentence clusters: a worker loads one range of the sentence index and the images routed to it.
Rows that came after the last search of the range have a higher commit number. New images are compared with all
sentences of the range, old images only with new sentences. A new sentence is written only if it is among the image's
best of the range, those of earlier runs included: otherwise each run would add a full set of candidates. The lake so
has at least what a search of everything would find. SQL ranks an image's candidates of all ranges and runs together.

With grouped sentences (`sentence_duplicates`) a candidate stands for its group: an image keeps the nearest sentence of
each of its nearest groups, and the cut replaces it with the group's keeper. Near copies would crowd out other
candidates. Measured on 1,000 images near a sentence with 30 planted copies (cosine 0.99): 12 candidates without groups
left 619 images without a text if candidates that are not the keeper are dropped, and all with one text if the keeper
replaces them; 48 candidates left 2 % with fewer than three texts for four times the storage, and 100 copies would crowd
out these too; 12 groups left every image three texts. Groups are facts that depend on no rule, and so are candidates.
When later sentences join groups, an image that was searched before has fewer candidates than a search of everything
would find. Beside centroids this is the only reason why ingesting A, then B may differ from ingesting both.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pairmill.catalog.pending import index_ranges, row_files, training
from pairmill.catalog.pending.changed_inputs import pending_similarity
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import SENTENCES
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING, IMAGE_SIMILARITY
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.pair import similarity
from pairmill.ops.whole.search import VERSION, top_k_apart
from pairmill.tasks.relate.cluster import pending_ranges, range_files
from pairmill.tasks.relate.recall import route
from pairmill.tasks.run.items.index_rows import read_range
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import read_rows, read_table, scalars, to_halves, to_vectors
from pairmill.tasks.run.place.identity import clip
from pairmill.tasks.run.session import Session

# A candidate sentence of an image, with its similarity.
MATCHES = pa.schema([("sha256", pa.string()), ("content", pa.string()), ("similarity", pa.float64())])


def associate(session: Session) -> None:
    """Find each image's candidate sentences in the cluster ranges with new rows, then score images against their texts.

    Searches nothing if the recipe's association is off, and scores nothing without its CLIP.
    """
    if session.recipe.association.is_on:
        route(session)
        search(session)
    if session.plan.computes(IMAGE_SIMILARITY.table):
        score_similarity(session)


def search(session: Session) -> None:
    """Write the nearest sentences of pictures to ``match_candidates``, from the cluster ranges with new rows."""
    association = session.recipe.association
    sentences, routes = session.plan.scorer(SENTENCES.clusters), session.plan.scorer("image_routes")
    settings = {"candidates": 4 * association.top_k}
    groups = session.plan.scorer("sentence_groups")
    made_from = (sentences, routes, groups) if groups else (sentences, routes)
    scorer = Scorer("matches", "match_candidates", VERSION, settings, "", made_from)
    digest = session.use("matches", scorer)
    trained = session.plan.scorer(SENTENCES.centroids)
    model = None if session.is_measured else training.find_trained(session.lake, trained)
    if model is None:
        return
    upto = max(index_ranges.newest(session.lake, "vector_index", scorer) for scorer in (sentences, routes))
    pending = pending_ranges(session, model, "match_candidates", digest, upto)
    files = [range_files(session, model, scorer, bool(pending)) for scorer in (sentences, routes)]
    if not all(each.paths for each in files):
        return
    searched = [name for name, span in pending.items() if span["done"] >= 0]
    known = row_files.paths_by_shard(session.lake, "match_candidates", searched, digest)
    common = {"files": files, "groups": row_files.newest_paths(session.lake, "sentence_groups", groups)}
    inputs = {name: {**span, **common, "known": known.get(name, ())} for name, span in pending.items()}
    items = [WorkItem(name, (str(upto),), inputs=of_range) for name, of_range in inputs.items()]
    session.work("associate", items, Search(4 * association.top_k, digest))


@dataclass(frozen=True)
class Search:
    """Job: search one range of sentence clusters for the images routed to it, into ``match_candidates``."""

    unit: ClassVar[str] = "cluster ranges"

    candidates: int
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Search one cluster range; return rows of ``match_candidates``."""
        columns = ["key", "cluster", "index_vector", "commit"]
        sentence_files, route_files = item.inputs["files"]
        sentences = read_range(sentence_files.paths, columns, item.inputs["range"], sentence_files.is_small).sort_by(
            [("cluster", "ascending"), ("key", "ascending")]
        )
        pictures = read_range(route_files.paths, columns, item.inputs["range"], route_files.is_small)
        groups = _groups(sentences["key"], item.inputs["groups"], item.inputs["range"], sentence_files.is_small)
        done = item.inputs["done"]
        new_sentence, new_picture = (rows["commit"].to_numpy() > done for rows in (sentences, pictures))
        found = [self._search(pictures.filter(pa.array(new_picture)), sentences, groups)]
        if done >= 0 and new_sentence.any():
            old, fresh = pictures.filter(pa.array(~new_picture)), sentences.filter(pa.array(new_sentence))
            found.append(self._among_best(self._search(old, fresh, groups[new_sentence]), item))
        return [Part("match_candidates", pa.concat_tables(found), self.scorer)]

    def _among_best(self, found: pa.Table, item: WorkItem) -> pa.Table:
        """Keep candidates among their image's best of this range, those in files ``inputs["known"]`` included."""
        images = found["sha256"].unique()
        owners = [_places(found["sha256"], images).to_numpy()]
        similarities = [found["similarity"].to_numpy()]
        for path in item.inputs["known"]:
            of_range = [("shard", "==", item.shard), ("scorer", "==", self.scorer)]
            rows = read_table(path, ["sha256", "similarity"], of_range)
            owner = _places(rows["sha256"], images)
            owners.append(owner.drop_null().to_numpy())
            similarities.append(rows["similarity"].filter(owner.is_valid()).to_numpy())
        owner = np.concatenate(owners)
        order = np.lexsort((-np.concatenate(similarities), owner))
        owner = owner[order]
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - np.searchsorted(owner, owner)
        return found.filter(pa.array(place[: found.num_rows] < self.candidates))

    def _search(self, pictures: pa.Table, sentences: pa.Table, groups: np.ndarray) -> pa.Table:
        """Find each image's best sentences in the clusters that it probes, a row of ``pictures`` each."""
        keys, first, member = np.unique(pictures["key"].to_numpy().astype(str), return_index=True, return_inverse=True)
        if not len(keys) or not sentences.num_rows:
            return MATCHES.empty_table()
        clusters = _probes(member, pictures["cluster"].to_numpy(), len(keys))
        offsets = np.searchsorted(sentences["cluster"].to_numpy(), np.arange(clusters.max() + 2))
        queries = to_vectors(pictures["index_vector"].take(pa.array(first)))
        vectors = to_halves(sentences["index_vector"])
        rows, similarities = top_k_apart(queries, clusters, vectors, offsets, self.candidates, groups)
        at, place = np.nonzero(rows >= 0)
        content = sentences["key"].take(pa.array(rows[at, place]))
        found = {"sha256": keys[at].tolist(), "content": content, "similarity": scalars(similarities[at, place])}
        return pa.table(found, MATCHES)


def _places(values: pa.ChunkedArray, among: pa.Array) -> pa.ChunkedArray:
    """Return the index of each value in ``among``, null for values that are not there."""
    return pc.index_in(values, among)  # pyright: ignore[reportAttributeAccessIssue] pyarrow makes it when imported


def _groups(keys: pa.ChunkedArray, paths: tuple[str, ...], span: tuple[int, int], is_small: bool) -> np.ndarray:
    """Return a group number per sentence, (n,) int64, by the files ``paths``; an ungrouped sentence has its own."""
    if not paths:
        return np.arange(len(keys))
    rows = read_range(paths, ["content", "group_id", "cluster"], span, is_small)
    codes = rows["group_id"].combine_chunks().dictionary_encode().indices.to_pylist()
    of = dict(zip(rows["content"].to_pylist(), codes, strict=True))
    own = len(of)  # behind all codes
    return np.array([of.get(key, own + n) for n, key in enumerate(keys.to_pylist())], np.int64)


def _probes(member: np.ndarray, clusters: np.ndarray, n: int) -> np.ndarray:
    """Return each image's cluster numbers, (n, most probes in this range) int64, padded with -1."""
    order = np.lexsort((clusters, member))
    member, clusters = member[order], clusters[order]
    place = np.arange(len(member)) - np.searchsorted(member, member)
    probes = np.full((n, place.max() + 1), -1, np.int64)
    probes[member, place] = clusters
    return probes


def score_similarity(session: Session) -> None:
    """Compute ``alt_similarity``, ``match_similarity`` and their maximum for images with new matches or alt texts."""
    made_from = tuple(session.plan.scorer(name) for name in IMAGE_SIMILARITY.made_from)
    table = IMAGE_SIMILARITY.table
    digest = session.use(table, Scorer(IMAGE_SIMILARITY.name, table, similarity.VERSION, {}, "", made_from))
    items = pending_similarity(session.lake, session.plan)
    session.work_rounds(IMAGE_SIMILARITY.step, items, ScoreSimilarity(clip(session.recipe), digest))


@dataclass(frozen=True)
class ScoreSimilarity:
    """Job: compute the CLIP similarity of images and alt texts, into ``image_similarity``; NULL without text."""

    model: ClassVar[str] = IMAGE_EMBEDDING.model
    unit: ClassVar[str] = "pictures"

    clip: Clip
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Score the images of one item; return rows of ``image_similarity``, with the stored ``match_similarity``."""
        rows = read_rows(item, ["sha256", "image_vector"], "sha256")
        images = to_vectors(rows["image_vector"])
        owners = [n for n, texts in enumerate(item.inputs["alt_texts"]) for _ in texts]
        texts = [text for texts in item.inputs["alt_texts"] for text in texts]
        alt = np.full(len(images), np.nan, np.float32)
        if texts:
            alt = similarity.max_similarity(images, self.clip.embed_texts(texts), np.array(owners))
        match = np.array([np.nan if value is None else value for value in item.inputs["match_similarity"]])
        scores = {"alt_similarity": alt, "match_similarity": match, "best_similarity": np.fmax(alt, match)}
        columns = {"sha256": rows["sha256"], "input_digest": pa.array(item.inputs["input_digests"], pa.string())}
        columns |= {name: pa.array(scalars(values), pa.float64()) for name, values in scores.items()}
        return [Part("image_similarity", pa.table(columns), self.scorer)]
