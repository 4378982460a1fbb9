"""Measure which share of deliberately wrong texts each rule on pairs accepts, on the lake's own pictures (canaries).

A canary is a picture whose own texts are withheld: the sentences of each document that has the picture or one of its
duplicate group, and all sentences that share a group of duplicates with these. Its other candidates are sentences that
the recipe retrieves from the rest of the lake. A rule on pairs should reject it. Some of these texts do describe the
picture by chance, so the share that a rule accepts is an upper estimate of its false-accept rate.

For a rule on a caption or a fused text, a canary is a picture with the text of another, see `similarity_to_others`.

The canaries are the searched pictures with the smallest `draw`, one of each duplicate group. They change no decision
and enter no dataset. No vector is read: the 4 x top_k stored candidates of a picture are its nearest groups of
sentences, so the remaining ones are also the nearest of the rest. A picture without remaining candidates is not
counted.
"""

from collections.abc import Mapping, Sequence

from pairmill.catalog.cut.facts_tables import image_checks, score_tables
from pairmill.catalog.cut.keepers import surviving
from pairmill.catalog.cut.texts import join_uses
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import current_scores, passed
from pairmill.catalog.recipe.parts import RETRIEVED
from pairmill.catalog.recipe.plan import Check, Plan
from pairmill.catalog.terms.score import Stage

CANARIES = 1_000
# Pictures considered for each canary, because several may be of one duplicate group.
_ALIKE = 10
_GENERATED = ("caption_", "synthetic_")


def try_rules(lake: Lake, plan: Plan) -> list[tuple[str, int, int]]:
    """Count for each rule on pairs, tried alone, the canaries and those that it rejects: (rule, canaries, rejected).

    A rule on candidates accepts a canary if it accepts any of its candidates. A rule on images reads the similarity of
    the best candidate. One on a caption or fused text is tried with another picture's; with the first candidate if it
    reads another score than CLIP's similarity, or the texts were scored before these were.
    """
    places = _in_place(plan)
    rules = [check for check in plan.image_checks if _is_tried(plan, check, places)]
    if not rules and not plan.candidate_checks:
        return []
    _prepare(lake, plan)
    n, *accepted = lake.query(_counts(plan, rules, places))[0]
    names = [check.name for check in (*plan.candidate_checks, *rules)]
    found = {name: (n, n - taken) for name, taken in zip(names, accepted, strict=True) if n}
    of_others = {check.name: _with_text_of_another(lake, plan, check) for check in rules}
    found |= {name: tried for name, tried in of_others.items() if tried[0]}
    return [(name, *found[name]) for name in names if name in found]


def _with_text_of_another(lake: Lake, plan: Plan, check: Check) -> tuple[int, int]:
    """Count the pictures that have a text of another, and how many the rule rejects with it; (0, 0) of other rules."""
    read = set(check.columns)
    tables = sorted(read & {f"{prefix}similarity" for prefix in _GENERATED})
    if not tables or not read <= _own_columns(plan) | {*tables}:
        return 0, 0
    canary = {table: table.replace("similarity", "canary") for table in tables}
    columns = [f"{canary[name]} AS {name}" if name in canary else name for name in sorted(read)]
    scores = "".join(
        f" JOIN (SELECT sha256, {canary[table]} FROM {current_scores(plan, table, 'sha256')} "
        f"WHERE {canary[table]} IS NOT NULL) USING (sha256)"
        for table in tables
    )
    first = (
        f"SELECT * FROM facts.images{scores} WHERE {passed(image_checks(plan))} "
        f"ORDER BY draw, sha256 LIMIT {CANARIES * _ALIKE}"
    )
    rows = (
        f"SELECT {', '.join(columns)} FROM ({first}) QUALIFY row_number() OVER "
        f"(PARTITION BY coalesce(group_id, sha256) ORDER BY draw, sha256) = 1 ORDER BY draw, sha256 LIMIT {CANARIES}"
    )
    return lake.query(f"SELECT count(*), count(*) FILTER (({check.keep}) IS NOT TRUE) FROM ({rows})")[0]


def best_texts(lake: Lake, plan: Plan, expression: str) -> str:
    """Return SQL for ``v``: ``expression`` over the similarities RETRIEVED, of each canary with its best text.

    Reads the facts of this connection.
    """
    _prepare(lake, plan)
    best = ", ".join(f"max(similarity) AS {name}" for name in sorted(RETRIEVED))
    return f"SELECT {expression} AS v FROM (SELECT {best} FROM canary_candidates GROUP BY n)"


def _prepare(lake: Lake, plan: Plan) -> None:
    """Create ``canary_candidates``."""
    _draw(lake, plan)
    _withhold(lake)
    _keep_candidates(lake, plan)


def _in_place(plan: Plan) -> dict[str, str]:
    """Return image column -> SQL of its replacement for a canary, aggregated over the canary's remaining candidates."""
    rank = plan.recipe.association.rank_by
    order = f"ORDER BY {f'{rank} DESC NULLS LAST, ' if rank else ''}place"
    scores = ("similarity", *(name for name, _ in plan.candidate_columns))
    generated = {f"{prefix}{name}": f"first({name} {order})" for prefix in _GENERATED for name in scores}
    own = {"alt_similarity": "CAST(NULL AS DOUBLE)"}  # the alt text is withheld too
    return own | dict.fromkeys(RETRIEVED, "max(similarity)") | generated


def _is_tried(plan: Plan, check: Check, places: Mapping[str, str]) -> bool:
    """Return whether a rule on images depends on a canary's candidates, and reads nothing that a canary lacks."""
    read = set(check.columns)
    return bool(read & places.keys() - {"alt_similarity"}) and read <= _own_columns(plan) | places.keys()


def _own_columns(plan: Plan) -> set[str]:
    """Return the columns of images that do not depend on a text."""
    return {name for table in (plan.image_tables[0], *score_tables(plan)[0]) for name in table.columns}


def _draw(lake: Lake, plan: Plan) -> None:
    """Create ``canaries(n, picture, group_id)``: one row a canary, ``n`` being a rowid of it in ``facts.images``."""
    searched = [check for check in plan.image_checks if check.stage < Stage.ASSOCIATE]
    pictures = (
        "SELECT picture, any_value(draw) AS draw, any_value(sha256) AS sha256, any_value(group_id) AS group_id, "
        f"arg_min(rowid, (occurrence, image_id)) AS n FROM facts.images WHERE {passed(searched)} GROUP BY picture"
    )
    first = (
        f"SELECT * FROM ({pictures}) SEMI JOIN facts.matches USING (picture) "
        f"ORDER BY draw, sha256 LIMIT {CANARIES * _ALIKE}"
    )
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE canaries AS SELECT n, picture, group_id FROM ({first}) QUALIFY "
        "row_number() OVER (PARTITION BY coalesce(group_id, sha256) ORDER BY draw, sha256) = 1 "
        f"ORDER BY draw, sha256 LIMIT {CANARIES}"
    )


def _withhold(lake: Lake) -> None:
    """Create ``canary_withheld(n, code)``: groups that a canary may not get, by the number of their first sentence."""
    alike = " UNION ".join(
        f"SELECT c.n, image_id FROM facts.images i JOIN canaries c ON i.{same} = c.{same}"
        for same in ("picture", "group_id")
    )
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE canary_documents AS SELECT DISTINCT n, document_id, shard FROM "
        f"(SELECT image_id, document_id, shard FROM images) JOIN ({alike}) USING (image_id)"
    )
    # As literals, shards select the files to read.
    named = "SELECT DISTINCT shard FROM canary_documents WHERE shard IS NOT NULL ORDER BY shard"
    shards = [shard for (shard,) in lake.query(named)]
    there = f"WHERE shard IN ({', '.join(map(quoted, shards))})" if shards else "WHERE false"
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE canary_withheld AS SELECT DISTINCT n, coalesce(duplicates, sentence) AS code "
        f"FROM (SELECT document_id, facts.key_of(content) AS key FROM sentences {there}) "
        "JOIN canary_documents USING (document_id) "
        "JOIN (SELECT key, rowid AS sentence FROM facts.contents) USING (key) "
        "JOIN (SELECT sentence, duplicates FROM facts.sentences) USING (sentence)"
    )


def _keep_candidates(lake: Lake, plan: Plan) -> None:
    """Create ``canary_candidates(n, sentence, place, ...)``: those of whose group a sentence passes the rules."""
    names = ["similarity", *(name for name, _ in plan.candidate_columns)]
    lists = "unnest(range(len(sentences))) AS place, unnest(similarities) AS similarity" + "".join(
        f", unnest({name}) AS {name}" for name in names[1:]
    )
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE canary_candidates AS SELECT n, sentence, place, {', '.join(names)}, "
        "coalesce(duplicates, sentence) AS code FROM "
        f"(SELECT n, unnest(sentences) AS sentence, {lists} FROM facts.matches JOIN canaries USING (picture)) "
        "JOIN (SELECT sentence, duplicates FROM facts.sentences) USING (sentence)"
    )
    alive = f"SELECT coalesce(duplicates, sentence) AS code FROM {surviving(plan)}"
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE canary_candidates AS FROM canary_candidates "
        f"ANTI JOIN canary_withheld USING (n, code){join_uses(plan)} WHERE code IN ({alive})"
    )


def _counts(plan: Plan, rules: Sequence[Check], places: Mapping[str, str]) -> str:
    """Return SQL for the number of canaries with a candidate, and how many of them each rule accepts."""
    read = sorted({column for check in rules for column in check.columns})
    best = "".join(f", {places[name]} AS {name}" for name in read if name in places)
    any_of = [f"bool_or(({check.keep}) IS TRUE)" for check in plan.candidate_checks]
    tried = "".join(f", {sql} AS tried{number}" for number, sql in enumerate(any_of))
    own = "".join(f", {name}" for name in read if name not in places)
    accepts = [f"tried{number}" for number in range(len(any_of))] + [f"({check.keep}) IS TRUE" for check in rules]
    counted = "".join(f", count(*) FILTER ({each})" for each in accepts)
    return (
        f"SELECT count(*){counted} FROM (SELECT n{best}{tried} FROM canary_candidates GROUP BY n) "
        f"JOIN (SELECT CAST(rowid AS BIGINT) AS n{own} FROM facts.images) USING (n)"
    )
