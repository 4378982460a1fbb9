"""List the pairs that a proof trains on, and read a judge's features of them.

`list_pairs` creates the temporary table ``proof_pairs(arm, sha256, shard, content, text)``: the arm RAW has one row a
picture of the lake that has a text, each version an arm with its pairs. ``content`` is the digest of the text.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.chosen_captions import text_digest
from pairmill.catalog.pending.eligible import candidates
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import items_by_shard
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING, JUDGE_TEXT

RAW, ORACLE = "raw", "oracle"
AT_ONCE = 20_000  # 20 MB of vectors of 512 numbers
_TEXT = "coalesce(nullif(text1, ''), nullif(caption, ''), nullif(syn_text, ''), nullif(alt_text, ''))"


def score_by(lake: Lake, scorers: Sequence[str], weights: str) -> str | None:
    """Return the name of a score of these scorers (digests) that a model's ``weights`` (a digest) made, if any."""
    sql = "SELECT min(name) FROM scorers WHERE list_contains(?, digest) AND model = ?"
    return lake.query(sql, (list(scorers), weights))[0][0]


def list_pairs(lake: Lake, plan: Plan, versions: Mapping[str, str], right: Sequence[str] | None) -> dict[str, int]:
    """Create ``proof_pairs``; return the number of pairs by arm, those without any left out.

    ``versions``: the SQL condition of each version's rows, by its name; ``plan`` is that of the first one. A raw text
    is the picture's alt text, else the sentence nearest to it by the version's CLIP; a version's is its first text.
    ``right``: the pictures whose raw pair is known to be right; these pairs are the arm ORACLE.
    """
    of_any = " OR ".join(f"({where})" for where in versions.values())
    arms = "".join(
        f" UNION ALL SELECT {quoted(name)}, sha256, min_by({_TEXT}, image_id) FROM pairs WHERE {where} GROUP BY sha256"
        for name, where in versions.items()
    )
    lake.execute(
        f"""CREATE OR REPLACE TEMP TABLE proof_pairs AS WITH pictures AS (
            SELECT sha256, min(alt_text) FILTER (trim(alt_text) <> '') AS alt FROM images SEMI JOIN
            (SELECT item_id AS image_id FROM decisions WHERE kind = 'image' AND ({of_any})) USING (image_id)
            GROUP BY sha256),
        best AS (SELECT sha256, min_by(content, (-similarity, content)) AS content FROM {candidates(plan)}
            SEMI JOIN pictures USING (sha256) GROUP BY sha256),
        near AS (SELECT sha256, any_value(text) AS near FROM best JOIN sentence_content USING (content)
            GROUP BY sha256),
        named AS (SELECT '{RAW}' AS arm, sha256, coalesce(alt, near) AS text FROM pictures LEFT JOIN near USING (sha256)
            {arms})
        SELECT arm, sha256, shard, {text_digest("text")} AS content, text FROM named
        JOIN image_content USING (sha256) WHERE text IS NOT NULL"""
    )
    if right is not None:
        sql = f"""INSERT INTO proof_pairs SELECT '{ORACLE}', * EXCLUDE (arm) FROM proof_pairs WHERE arm = '{RAW}'
            AND sha256 IN (SELECT unnest(?::VARCHAR[]))"""
        lake.execute(sql, (list(right),))
    return dict(lake.query("SELECT arm, count(*) FROM proof_pairs GROUP BY arm"))


def pending_texts(lake: Lake, scorer: str) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items: the pairs' texts that the judge's scorer has not embedded; keys 'sha256 content'."""
    sql = f"""SELECT DISTINCT shard, sha256 || ' ' || content AS key, text AS texts FROM proof_pairs
        ANTI JOIN (SELECT sha256, content FROM {JUDGE_TEXT.table} WHERE scorer = '{scorer}') USING (sha256, content)"""
    return items_by_shard(lake, sql, lambda _: defaultdict(tuple), ("texts",))


def read_features(
    lake: Lake, scorers: tuple[str, str]
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Read a judge's vectors float16 of the pictures (n, d) and the texts (m, d), each arm's rows, the pictures' ids.

    ``scorers``: digests of the judge's scorers of pictures and of texts. An arm's rows are (p, 2) numbers of picture
    and text, by sha256; pairs without both vectors are left out. 1M pairs of 512 numbers take 4 GB.
    """
    pictures, shas = _vectors(lake, IMAGE_EMBEDDING.table, "image_vector", "sha256", scorers[0])
    texts, contents = _vectors(lake, JUDGE_TEXT.table, "judge_text", "content", scorers[1])
    arms: dict[str, list[np.ndarray]] = defaultdict(list)
    for block in lake.blocks("SELECT arm, sha256, content FROM proof_pairs ORDER BY ALL", rows=AT_ONCE):
        names = np.array(block["arm"].to_pylist())
        places = [_places(block[name].to_pylist(), among) for name, among in (("sha256", shas), ("content", contents))]
        rows = np.stack(places, 1)
        for name in np.unique(names):
            arms[str(name)].append(rows[(names == name) & (rows >= 0).all(1)])
    return pictures, texts, {name: np.concatenate(parts) for name, parts in arms.items()}, shas


def failed_rules(lake: Lake, where: str, rules: Sequence[str], pictures: np.ndarray) -> dict[str, np.ndarray]:
    """Return rule -> whether it drops each of ``pictures`` (sorted ids); leave out rules that drop none.

    ``where`` is SQL for the version's rows. Occurrences of one picture count as dropped if all are. Of a rule on
    generated texts only those are known that it dropped: others may have fallen before.
    """
    sql = f"SELECT rule FROM funnel WHERE kind = 'image' AND {where} ORDER BY position"
    steps = [row[0] for row in lake.query(sql)]
    bits = np.zeros(len(pictures), np.uint64)
    sql = f"""SELECT sha256, bit_and(coalesce(failed, 0)) AS failed FROM images JOIN (SELECT item_id AS image_id, failed
        FROM decisions WHERE kind = 'image' AND {where}) USING (image_id) GROUP BY sha256"""
    for block in lake.blocks(sql, rows=AT_ONCE):
        at = _places(block["sha256"].to_pylist(), pictures)
        bits[at[at >= 0]] = block["failed"].to_numpy()[at >= 0]
    places = {rule: np.uint64(steps.index(rule)) for rule in rules if rule in steps}
    found = {rule: (bits >> place & np.uint64(1)).astype(bool) for rule, place in places.items()}
    return {rule: drops for rule, drops in found.items() if drops.any()}


def _vectors(lake: Lake, table: str, column: str, key: str, scorer: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of one column for the pairs' keys, and these keys, sorted."""
    sql = f"""SELECT {key}, any_value({column}) AS v FROM {table} SEMI JOIN proof_pairs USING ({key})
        WHERE scorer = '{scorer}' AND {column} IS NOT NULL GROUP BY {key} ORDER BY {key}"""
    keys: list[np.ndarray] = [np.empty(0, "S32")]
    parts: list[np.ndarray] = []
    for block in lake.blocks(sql, rows=AT_ONCE):
        keys.append(np.array(block[key].to_pylist(), "S32"))
        parts.append(np.frombuffer(b"".join(block["v"].to_pylist()), "<f2").reshape(block.num_rows, -1))
    return np.concatenate(parts) if parts else np.empty((0, 0), np.float16), np.concatenate(keys)


def _places(keys: Sequence[str], among: np.ndarray) -> np.ndarray:
    """Return the place of each key in the sorted array ``among``, -1 for one that is not there."""
    wanted = np.array(keys, "S32")
    at = np.minimum(np.searchsorted(among, wanted), max(0, len(among) - 1))
    return np.where(among[at] == wanted, at, -1) if len(among) else np.full(len(wanted), -1)
