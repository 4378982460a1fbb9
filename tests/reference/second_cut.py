"""Cut a recipe a second time, image by image in Python, from the stored scores and without the tables of facts.

It is the twin of :mod:`catalog.cut`, with which it shares no code but the SQL of single rules: early rules, exact
duplicates, duplicate groups, a passing sentence, rules on generated texts, the cap, the texts.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairmill.catalog.cut.released_address import with_released_address
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.eligible import AFTER_ALL, image_rows, sentence_rows
from pairmill.catalog.queries.datasets import Dataset, find
from pairmill.catalog.recipe.parts import Association
from pairmill.catalog.recipe.plan import CAPTION_TABLES, Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.score import Stage

# Tables of generated texts, whose scorers have a name of their own.
_TABLE_OF = {"caption": "captions", "fuse": "synthetic"}
_Key = Callable[["CutImage"], Any]


@dataclass
class CutImage:
    """One occurrence of an image, and what decides on it.

    Attributes:
        image_id: Its id.
        sha256: Its content.
        dropped_by: The first step that drops it so far; '' for none.
        late: The first rule on generated texts that it fails; '' for none.
        occurrence: Its rank among occurrences of the same content.
        quality: Its rank in its duplicate group.
        offers: Its candidates as (sentence that would be given, similarity, rank), best first; those without one left
            out. The rank is the similarity, or what the recipe ranks by.
        texts: The sentences it gets, with their similarities.
    """

    image_id: str
    sha256: str
    dropped_by: str
    late: str
    occurrence: tuple[str, str, str]
    quality: tuple[int, int, str]
    offers: list[tuple[str, float, float]] = field(default_factory=list)
    texts: list[tuple[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Evidence:
    """The stored rows behind a cut.

    Attributes:
        group: Image -> its duplicate group.
        cluster: Image -> its cluster of the cap.
        candidates: Image -> its candidates as (sentence, similarity), in any order.
        refused: The (image, sentence) that fail a rule on candidates.
        ranks: (image, sentence) -> the score that the recipe's `rank_by` names; None without `rank_by`.
        sentence_group: Sentence -> its group of near copies.
        passing: The sentences that pass the rules and occur in a current document.
    """

    group: Mapping[str, str]
    cluster: Mapping[str, int]
    candidates: Mapping[str, list[tuple[str, float]]]
    refused: frozenset[tuple[str, str]]
    ranks: Mapping[tuple[str, str], float | None] | None
    sentence_group: Mapping[str, str]
    passing: frozenset[str]


def agrees(place: Path | str, name: str) -> bool:
    """Return whether a version equals its second cut; ``name`` is NAME or NAME@V, ``place`` the lake's folder."""
    with create_or_open(place, read_only=True) as lake:
        return not differences(lake, find(lake, name))


def differences(lake: Lake, dataset: Dataset) -> dict[str, tuple[str, str]]:
    """Return the images on which a version and a second cut differ: image -> (stored, found).

    Of an amended version only decisions by the images' own scores are compared: what was removed had kept others out,
    and lent them texts.
    """
    plan = _plan(lake, dataset)
    pictures = second_cut(lake, plan, dataset.commit)
    key = f"dataset = {quoted(dataset.name)} AND version = {dataset.version}"
    decided = dict(lake.query(f"SELECT item_id, dropped_by FROM decisions WHERE {key} AND kind = 'image'"))
    names = zip(text_columns.texts(dataset.n_texts), text_columns.similarities(dataset.n_texts), strict=True)
    columns = ", ".join(f"{text}, {similarity}" for text, similarity in names)
    given = {
        image_id: [(text, value) for text, value in zip(row[::2], row[1::2], strict=True) if text is not None]
        for image_id, *row in lake.query(f"SELECT image_id, {columns} FROM pairs WHERE {key}")
    }
    texts = dict(lake.query("SELECT content, text FROM second_asked"))
    own = {check.name for check in plan.image_checks if check.stage < Stage.CAPTION}
    found: dict[str, tuple[str, str]] = {}
    now = {each.image_id: each for each in pictures}
    for image_id in sorted(decided.keys() | now.keys()):
        was = decided.get(image_id, "no decision")
        is_now = now[image_id].dropped_by if image_id in now else "no decision"
        if was != is_now and (not dataset.amended or own.intersection((was, is_now))):
            found[image_id] = (was, is_now)
        elif was == is_now == "" and not dataset.amended:
            chosen = [(texts[sentence], similarity) for sentence, similarity in now[image_id].texts]
            if chosen != given.get(image_id):
                found[image_id] = (f"texts {given.get(image_id)}", f"texts {chosen}")
    return found


def _plan(lake: Lake, dataset: Dataset) -> Plan:
    """Compile the version's recipe with the digests of the scorers that it read."""
    known = lake.query("SELECT name, digest FROM scorers WHERE list_contains(?, digest)", (dataset.scorers,))
    scorers = {str(_TABLE_OF.get(name, name)): str(digest) for name, digest in known}
    plan = compile_plan(Recipe.model_validate(json.loads(dataset.recipe)), scorers)
    captioners = lake.query(
        "SELECT position, scorer, similarity_scorer FROM dataset_captioners WHERE dataset = ? AND version = ?",
        (dataset.name, dataset.version),
    )
    for place, scorer, similarity in captioners:
        for table, digest in zip(CAPTION_TABLES, (scorer, similarity), strict=True):
            plan = plan.with_scorer(plan.of_captioner(table, place), digest)
    return plan


def second_cut(lake: Lake, plan: Plan, upto: int) -> list[CutImage]:
    """Cut all images by the rows of commits up to ``upto``; return them with ``dropped_by`` and ``texts`` set."""
    pictures = _pictures(lake, plan, upto)
    evidence = _evidence(lake, plan, upto)
    _drop_all_but_first(pictures, "exact_duplicate", lambda each: each.sha256, lambda each: each.occurrence)
    _drop_all_but_first(
        pictures, "duplicate", lambda each: evidence.group.get(each.sha256, each.sha256), lambda each: each.quality
    )
    association = plan.recipe.association
    _offer(_alive(pictures), evidence, 4 * association.top_k, association.at_least)
    _balance(_alive(pictures), evidence, plan)
    _assign(_alive(pictures), association, association.max_uses or len(pictures) + 1)
    return pictures


def _alive(pictures: Iterable[CutImage]) -> list[CutImage]:
    """Return the pictures that no step has dropped."""
    return [each for each in pictures if not each.dropped_by]


def _pictures(lake: Lake, plan: Plan, upto: int) -> list[CutImage]:
    """Read the current occurrences, each with the first early and the first late rule that it fails."""
    late = {check.name for check in plan.image_checks if check.stage >= Stage.CAPTION}
    early = with_released_address(image_rows(plan, Stage.CAPTION, upto))
    every = f"SELECT image_id, dropped_by AS first FROM ({image_rows(plan, AFTER_ALL, upto)})" if late else ""
    joined = f"LEFT JOIN ({every}) USING (image_id)" if every else "CROSS JOIN (SELECT '' AS first)"
    rows = lake.query(
        "SELECT image_id, sha256, dropped_by, first, concat_ws(' ', position, alt_text), "
        f"coalesce(raw_image_url, ''), CAST(width AS BIGINT) * height, n_bytes FROM {early} {joined}"
    )
    return [
        CutImage(
            image_id, sha256, dropped_by, first if first in late else "", (_hash(said), _hash(address), image_id),
            (-(pixels or 0), -(n_bytes or 0), sha256),
        )
        for image_id, sha256, dropped_by, first, said, address, pixels, n_bytes in rows
    ]  # fmt: skip


def _evidence(lake: Lake, plan: Plan, upto: int) -> Evidence:
    """Read groups, clusters and candidates of the images, and of their candidates the groups and the passing ones."""
    group = dict(lake.query(f"SELECT sha256, group_id {_newest(plan, 'image_groups', upto)}"))
    group = {group_id: group_id for group_id in group.values()} | group
    scorer = plan.scorer("balance_clusters")
    cluster = dict(lake.query(f"SELECT key, cluster FROM clusters WHERE scorer = '{scorer}' AND commit <= {upto}"))
    found = (
        "SELECT sha256, content, max(similarity) AS similarity FROM match_candidates "
        f"WHERE scorer = '{plan.scorer('matches')}' AND commit <= {upto} GROUP BY ALL"
    )
    candidates = defaultdict(list)
    for sha256, content, similarity in lake.query(f"FROM ({found}) SEMI JOIN sentence_content USING (content)"):
        candidates[sha256].append((content, similarity))
    sentences = {content for offers in candidates.values() for content, _ in offers}
    sentence_group = _sentence_groups(lake, plan, upto, sentences) if plan.scorer("sentence_groups") else {}
    lake.execute("CREATE OR REPLACE TEMP TABLE second_sentences (content VARCHAR)")
    lake.execute("INSERT INTO second_sentences SELECT unnest(?::VARCHAR[])", ([*sentences | sentence_group.keys()],))
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE second_asked AS SELECT content, text, shard FROM sentence_content "
        f"SEMI JOIN second_sentences USING (content) WHERE commit <= {upto}"
    )
    checked = sentence_rows(plan, AFTER_ALL, upto, "second_asked")
    passing = frozenset(content for (content,) in lake.query(f"SELECT content FROM ({checked}) WHERE dropped_by = ''"))
    refused, ranks = _pair_scores(lake, plan, upto, found)
    return Evidence(group, cluster, candidates, refused, ranks, sentence_group, passing)


def _pair_scores(
    lake: Lake, plan: Plan, upto: int, found: str
) -> tuple[frozenset[tuple[str, str]], dict[tuple[str, str], float | None] | None]:
    """Return the pairs among ``found`` that fail a rule on candidates, and the numbers that rank all of them."""
    rows, tables = f"({found})", {table.table for _, table in plan.candidate_columns}
    for table in tables:
        values = ", ".join(
            f"{each.source[name]} AS {name}" for name, each in plan.candidate_columns if each.table == table
        )
        scored = (
            f"SELECT sha256, content, {values} FROM {table} WHERE scorer = '{plan.scorer(table)}' AND commit <= {upto}"
        )
        rows += f" LEFT JOIN ({scored}) USING (sha256, content)"
    fails = " OR ".join(f"({check.keep}) IS NOT TRUE" for check in plan.candidate_checks)
    refused = lake.query(f"SELECT sha256, content FROM {rows} WHERE {fails}") if fails else []
    rank = plan.recipe.association.rank_by
    ranks = lake.query(f"SELECT sha256, content, {rank} FROM {rows}") if rank else None
    return frozenset(refused), None if ranks is None else {(sha, content): value for sha, content, value in ranks}


def _newest(plan: Plan, table: str, upto: int) -> str:
    """Return the FROM and WHERE of the newest complete grouping up to a commit."""
    where = f"WHERE scorer = '{plan.scorer(table)}' AND commit <= {upto}"
    return f"FROM {table} {where} AND commit = (SELECT max(commit) FROM {table} {where})"


def _sentence_groups(lake: Lake, plan: Plan, upto: int, sentences: set[str]) -> dict[str, str]:
    """Return the group of each of ``sentences``, and of all other members of these groups."""
    newest = _newest(plan, "sentence_groups", upto)
    lake.execute("CREATE OR REPLACE TEMP TABLE second_sentences (content VARCHAR)")
    lake.execute("INSERT INTO second_sentences SELECT unnest(?::VARCHAR[])", ([*sentences],))
    touched = f"SELECT group_id {newest} AND content IN (SELECT content FROM second_sentences)"
    return dict(lake.query(f"SELECT content, group_id {newest} AND group_id IN ({touched})"))


def _drop_all_but_first(pictures: list[CutImage], step: str, group_of: _Key, rank_of: _Key) -> None:
    """Drop all pictures of a group but the first in rank."""
    kept = set()
    for each in sorted(_alive(pictures), key=rank_of):
        if group_of(each) in kept:
            each.dropped_by = step
        kept.add(group_of(each))


def _offer(pictures: list[CutImage], evidence: Evidence, most: int, at_least: int) -> None:
    """Set what each picture is offered: of each group of near copies once, its smallest passing member.

    A picture with fewer offers than ``at_least`` is dropped.
    """
    keeper: dict[str, str] = {}
    for content in sorted(evidence.passing, reverse=True):
        keeper[evidence.sentence_group.get(content, content)] = content
    for each in pictures:
        best: dict[str, tuple[float, str]] = {}
        for content, similarity in sorted(
            evidence.candidates.get(each.sha256, ()), key=lambda pair: (-pair[1], pair[0])
        ):
            best.setdefault(evidence.sentence_group.get(content, content), (similarity, content))
        offers = [
            (keeper[group], similarity, _rank(evidence, each.sha256, content, similarity))
            for group, (similarity, content) in [*best.items()][:most]
            if group in keeper and (each.sha256, content) not in evidence.refused
        ]
        each.offers = sorted(offers, key=lambda offer: -offer[2])
        if len(each.offers) < at_least:
            each.dropped_by = "no_text"


def _rank(evidence: Evidence, sha256: str, content: str, similarity: float) -> float:
    """Return the number by which a candidate is ranked; a candidate without the score of `rank_by` is last."""
    if evidence.ranks is None:
        return similarity
    rank = evidence.ranks[sha256, content]
    return -math.inf if rank is None else rank


def _balance(pictures: list[CutImage], evidence: Evidence, plan: Plan) -> None:
    """Apply the cap of each cluster in the order of the draw, and the rules on generated texts."""
    drawn = sorted(pictures, key=lambda each: _hash(f"{each.sha256}{plan.recipe.seed}")[:16])
    cap = plan.recipe.balance.cap
    passed: Counter[int] = Counter()
    for each in drawn:
        cluster = evidence.cluster.get(each.sha256)
        if cap is not None and cluster is not None and passed[cluster] >= cap:
            each.dropped_by = "balance"
        elif each.late:
            each.dropped_by = each.late
        elif cluster is not None:
            passed[cluster] += 1


def _assign(pictures: list[CutImage], association: Association, max_uses: int) -> None:
    """Give sentences pair by pair in the order of their ranks; drop the pictures that get too few by ``max_uses``."""
    pairs = sorted(
        (-rank, each.sha256, place, sentence, similarity, at)
        for at, each in enumerate(pictures)
        for place, (sentence, similarity, rank) in enumerate(each.offers)
    )
    uses: Counter[str] = Counter()
    for _, _, _, sentence, similarity, at in pairs:
        if len(pictures[at].texts) < association.top_k and uses[sentence] < max_uses:
            pictures[at].texts.append((sentence, similarity))
            uses[sentence] += 1
    for each in pictures:
        if len(each.texts) < association.at_least:
            each.dropped_by = "max_uses"


def _hash(text: str) -> str:
    """Return sha256 in hexadecimal, whose first 16 digits order as the cut's 64 bits do."""
    return hashlib.sha256(text.encode()).hexdigest()
