"""Verify a dataset version: cut it a second time from the stored scores, and compare every decision and text.

Up to WHOLE images are verified all. Of a larger version whole clusters of the cap are drawn, or pictures if there is no
cap, with all members of their duplicate groups, until WHOLE / 2 images are read: 100,000 of 30 million find a fault
that touches one image in 30,000 with a chance of 96 %. In a sample, which sentences a limit of uses takes away depends
on pictures outside, so of a recipe with `max_uses` only the first steps are compared.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.compare.amended_digest import digest_before, version_digest
from pairmill.catalog.queries.compare.forgotten_scores import steps_in_doubt
from pairmill.catalog.queries.compare.second_cut import CutImage, second_cut
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.recipe.plan import CAPTION_TABLES, Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.score import Stage

WHOLE = 200_000
SHOWN = 20
# Tables of generated texts, whose scorers have a name of their own.
_TABLE_OF = {"caption": "captions", "fuse": "synthetic"}


@dataclass(frozen=True)
class Disagreement:
    """One image on which version and second cut differ: ``stored`` and ``found`` as in "dropped by 'balance'".

    ``was`` and ``now`` are the rules that drop it, '' if it is kept or has no decision.
    """

    image_id: str
    stored: str
    found: str
    was: str = ""
    now: str = ""


@dataclass(frozen=True)
class Verification:
    """The result of a verification.

    Attributes:
        images: Images whose decision was compared.
        of: Images of the version.
        pairs: Pairs whose texts were compared.
        differing: Images whose decision or texts differ.
        shown: The first SHOWN of them by id.
        unchecked: Rules and steps whose scores were forgotten since; decisions by them, and by later steps, were not
            compared.
        checked: If there are any, the rules on images that were compared.
    """

    images: int
    of: int
    pairs: int
    differing: int
    shown: tuple[Disagreement, ...]
    unchecked: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()


def verify(lake: Lake, dataset: Dataset) -> Verification:
    """Compare a version with a second cut of its recipe over the scores that it read.

    Raises:
        PairmillError: The version was changed by anything but its recorded removals, or pages that it read were read
            again since, so the rows behind its decisions are no longer those of then.
    """
    if dataset.amended:
        _check_amended(lake, dataset)
    plan = _plan(lake, dataset)
    key = f"dataset = {quoted(dataset.name)} AND version = {dataset.version}"
    stored = f"SELECT item_id AS image_id, dropped_by, value FROM decisions WHERE {key} AND kind = 'image'"
    of = lake.query(f"SELECT count(*) FROM ({stored})")[0][0]
    _refuse_if_read_again(lake, dataset, stored)
    among = "" if of <= WHOLE else _drawn(lake, plan, dataset, of)
    pictures = second_cut(lake, plan, dataset.commit, among)
    if among:
        asked = {sha256 for (sha256,) in lake.query("SELECT sha256 FROM verified WHERE asked")}
        pictures = [each for each in pictures if each.sha256 in asked]
    whole = not dataset.amended and (not among or plan.recipe.association.max_uses is None)
    found = _differences(lake, pictures, stored, key, whole, dataset.n_texts)
    if dataset.amended:  # what was removed had kept others out, and lent them texts: only their own scores still decide
        own = {check.name for check in plan.image_checks if check.stage < Stage.CAPTION}
        found = [each for each in found if own.intersection((each.was, each.now))]
    unchecked, checked = steps_in_doubt(lake, dataset)
    if unchecked:
        found = [each for each in found if {each.was, each.now}.intersection(checked)]
        whole = False
    differing = sorted(found, key=lambda each: each.image_id)
    pairs = sum(not each.dropped_by for each in pictures) if whole else 0
    return Verification(len(pictures), of, pairs, len(differing), tuple(differing[:SHOWN]), unchecked, checked)


def _check_amended(lake: Lake, dataset: Dataset) -> None:
    """Raise PairmillError unless the version is the published one without what its recorded removals took out."""
    key = (dataset.name, dataset.version)
    sql = (
        "SELECT a.digest_before FROM amended_versions a JOIN takedowns t USING (takedown_id) "
        'WHERE a.dataset = ? AND a.version = ? ORDER BY t."commit" LIMIT 1'
    )
    published = lake.query(sql, key)
    now = version_digest(lake, *key)
    if not published or now != dataset.content_digest or digest_before(lake, *key) != published[0][0]:
        raise PairmillError(
            f"{dataset} was changed by more than its removals record: its pairs are not those that were published. Put "
            "the lake back from a copy, or publish a new version."
        )


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


def _refuse_if_read_again(lake: Lake, dataset: Dataset, stored: str) -> None:
    """Raise PairmillError if images of the version have no row of its time: their pages were read again since."""
    held = f"SELECT image_id FROM images WHERE commit <= {dataset.commit}"
    missing = lake.query(f"SELECT count(*) FROM ({stored}) ANTI JOIN ({held}) USING (image_id)")[0][0]
    if missing:
        raise PairmillError(
            f"the pages of {missing:,} images of {dataset} were read again since; verify its newest version."
        )


def _drawn(lake: Lake, plan: Plan, dataset: Dataset, of: int) -> str:
    """Create the table ``verified(sha256, asked)`` and return its name.

    ``asked``: images of whole clusters drawn by the hash of their number, or images drawn by their own hash. The others
    are members of their duplicate groups.
    """
    share = WHOLE / 2 / of
    scorer = plan.scorer("balance_clusters")
    chance = "hash({}) / 18446744073709551616 < " + repr(share)
    drawn = (
        f"SELECT key AS sha256 FROM clusters WHERE scorer = '{scorer}' AND commit <= {dataset.commit} "
        f"AND {chance.format('cluster')}"
        if plan.recipe.balance.cap is not None and scorer
        else f"SELECT DISTINCT sha256 FROM images WHERE commit <= {dataset.commit} AND {chance.format('sha256')}"
    )
    lake.execute(f"CREATE OR REPLACE TEMP TABLE verified AS SELECT sha256, true AS asked FROM ({drawn})")
    grouped = (
        f"SELECT sha256, group_id FROM image_groups WHERE scorer = '{plan.scorer('image_groups')}' "
        f"AND commit <= {dataset.commit}"
    )
    # The smallest member of a group, whose id the group has, may have no row.
    touched = f"SELECT group_id FROM ({grouped}) SEMI JOIN verified USING (sha256) UNION SELECT sha256 FROM verified"
    lake.execute(
        "INSERT INTO verified SELECT DISTINCT sha256, false FROM (SELECT unnest([sha256, group_id]) AS sha256 FROM "
        f"({grouped}) WHERE group_id IN ({touched})) ANTI JOIN verified USING (sha256)"
    )
    return "verified"


def _differences(
    lake: Lake, pictures: list[CutImage], stored: str, key: str, whole: bool, n_texts: int
) -> Iterable[Disagreement]:
    """Yield the images whose decision differs, or whose texts do if ``whole``."""
    ids = "CREATE OR REPLACE TEMP TABLE verified_ids AS SELECT unnest(?::VARCHAR[]) AS image_id"
    lake.execute(ids, ([each.image_id for each in pictures],))
    decided = dict(lake.query(f"SELECT image_id, dropped_by FROM ({stored}) SEMI JOIN verified_ids USING (image_id)"))
    names = zip(text_columns.texts(n_texts), text_columns.similarities(n_texts), strict=True)
    columns = ", ".join(f"{text}, {similarity}" for text, similarity in names)
    given = {
        image_id: [(text, value) for text, value in zip(row[::2], row[1::2], strict=True) if text is not None]
        for image_id, *row in lake.query(
            f"SELECT image_id, {columns} FROM pairs SEMI JOIN verified_ids USING (image_id) WHERE {key}"
        )
    }
    texts = dict(lake.query("SELECT content, text FROM second_asked"))
    for each in pictures:
        was = decided.pop(each.image_id, None)
        found = each.dropped_by
        if not whole and {was, found} <= {"", "max_uses"}:
            continue
        if was != found:
            yield Disagreement(each.image_id, _said(was), _said(found), was or "", found)
        elif whole and not found:
            chosen = [(texts[sentence], similarity) for sentence, similarity in each.texts]
            if chosen != given.get(each.image_id):
                yield Disagreement(each.image_id, f"texts {given.get(each.image_id)}", f"texts {chosen}")
    for image_id, was in decided.items():
        yield Disagreement(image_id, _said(was), _said(None), was)


def _said(dropped_by: str | None) -> str:
    """Put a decision in words."""
    return "no decision" if dropped_by is None else f"dropped by '{dropped_by}'" if dropped_by else "kept"
