"""Take removed pictures and sentences out of published versions, and prove that nothing else has changed.

For each pair that is taken out or changed, the digests of its row before and after are recorded. With these, the
version's published digest can be recomputed from the remaining rows: `is_as_published`.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset, published
from pairmill.catalog.terms import text_columns
from pairmill.catalog.upkeep.damages import Damage

_GIVEN = " OR ".join(f"{name} IN (SELECT text FROM taken_sentences)" for name in text_columns.texts())
_FUSED = "(sha256, {0}) IN (SELECT (sha256, text) FROM taken_fused)"
_OWN = "(sha256, {0}) IN (SELECT (sha256, text) FROM taken_own)"
# Columns of pairs whose text is an edit of a taken text.
_EDITED = f"""SELECT dataset, version, image_id, field FROM edited_texts WHERE starts_with(field, 'text') AND before IN
    (SELECT text FROM taken_sentences) OR field = 'syn_text' AND {_FUSED.format("before")}
    OR field IN ('caption', 'alt_text') AND {_OWN.format("before")}"""


def find_touched(lake: Lake) -> list[Dataset]:
    """Return the versions that a takedown changes: a decision is on a taken picture, or a pair has a taken text."""
    decided = "SELECT DISTINCT dataset, version FROM decisions WHERE item_id IN (SELECT image_id FROM taken_images)"
    paired = f"""SELECT DISTINCT dataset, version FROM pairs WHERE image_id IN (SELECT image_id FROM taken_images)
        OR {_FUSED.format("syn_text")} OR {_OWN.format("caption")} OR {_GIVEN}
        UNION SELECT DISTINCT dataset, version FROM ({_EDITED})"""
    found = set(lake.query(f"{decided} UNION {paired}"))
    return [each for each in published(lake) if (each.name, each.version) in found]


def amend(lake: Lake, dataset: Dataset, takedown_id: str) -> dict[str, Any]:
    """Take the takedown's pictures and texts out of one version's pairs, within a transaction of the caller.

    `delete_rows` deletes decisions and scores. A pair loses its taken texts and edits of these, and later texts move
    up; a pair without texts is removed. A fused text that may come from a taken text becomes NULL, as does a caption
    that a taken document gave. Returns ``dataset`` (NAME@VERSION), ``pairs_removed`` and ``pairs_changed``.
    """
    before, key, n = _version_digest(lake, dataset), (dataset.name, dataset.version), dataset.n_texts
    columns = tuple(zip(text_columns.texts(n), text_columns.similarities(n), strict=True))
    edits = f"(SELECT * FROM ({_EDITED}) WHERE {dataset.where})"
    lake.execute(f"""CREATE OR REPLACE TEMP TABLE amending AS SELECT p.*, {_row_digest("p", dataset)} AS before
        FROM pairs p WHERE {dataset.where} AND (image_id IN (SELECT image_id FROM taken_images) OR {_GIVEN} OR
        {_FUSED.format("syn_text")} OR {_OWN.format("caption")} OR image_id IN (SELECT image_id FROM {edits}))""")
    packed = ", ".join(
        f"struct_pack(n := {n}, t := {text}, s := {alike})" for n, (text, alike) in enumerate(columns, 1)
    )
    lake.execute(f"""CREATE OR REPLACE TEMP TABLE left_texts AS SELECT image_id, list(x ORDER BY x.n) AS kept FROM
        (SELECT image_id, unnest([{packed}]) AS x FROM amending) WHERE x.t IS NOT NULL AND x.t NOT IN
        (SELECT text FROM taken_sentences) AND (image_id, 'text' || x.n) NOT IN
        (SELECT (image_id, field) FROM {edits}) GROUP BY image_id""")
    texts = ", ".join(
        f"l.kept[{place}].t AS {text}, l.kept[{place}].s AS {alike}" for place, (text, alike) in enumerate(columns, 1)
    )
    kept = {
        column: f"CASE WHEN NOT (({field} IS NOT NULL AND {taken.format(f'a.{field}')}) OR a.image_id IN "
        f"(SELECT image_id FROM {edits} WHERE field = '{field}')) THEN {column} END AS {column}"
        for field, similarity, taken in (
            ("syn_text", "synthetic_similarity", _FUSED),
            ("caption", "caption_similarity", _OWN),
            ("alt_text", "alt_text", _OWN),
        )
        for column in (field, similarity)
    }
    replaced = f"""SELECT a.* EXCLUDE (before) REPLACE ({texts}, {", ".join(kept.values())}) FROM amending a
        JOIN left_texts l USING (image_id) WHERE image_id NOT IN (SELECT image_id FROM taken_images)"""
    lake.execute(f"CREATE OR REPLACE TEMP TABLE amended AS {replaced}")
    _move_edits(lake, dataset)
    lake.execute(f"DELETE FROM pairs WHERE {dataset.where} AND image_id IN (SELECT image_id FROM amending)")
    lake.execute("INSERT INTO pairs BY NAME SELECT * FROM amended ORDER BY image_id")
    sql = f"""INSERT INTO amended_pairs BY NAME SELECT a.dataset, a.version, ? AS takedown_id, a.sha256, a.before,
        n.after FROM amending a LEFT JOIN
        (SELECT image_id, {_row_digest("amended", dataset)} AS after FROM amended) n USING (image_id)"""
    lake.execute(sql, (takedown_id,))
    changed = lake.query("SELECT count(*) FROM amended")[0][0]
    removed = lake.query("SELECT count(*) FROM amending")[0][0] - changed
    after = _version_digest(lake, dataset)
    lake.execute("INSERT INTO amended_versions VALUES (?, ?, ?, ?, ?, ?, ?)",
                 (*key, takedown_id, before, after, removed, changed))  # fmt: skip
    lake.execute("UPDATE datasets SET amended = true, content_digest = ?, n_pairs = n_pairs - ? "
                 "WHERE name = ? AND version = ?", (after, removed, *key))  # fmt: skip
    return {"dataset": str(dataset), "pairs_removed": removed, "pairs_changed": changed}


def _move_edits(lake: Lake, dataset: Dataset) -> None:
    """Move the rows of `edited_texts` with the texts of `left_texts` that move up; delete those of texts that go."""
    held = f"{dataset.where} AND starts_with(field, 'text') AND image_id IN (SELECT image_id FROM amending)"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE moved_edits AS SELECT * FROM edited_texts WHERE {held}")
    lake.execute(f"DELETE FROM edited_texts WHERE {held}")
    places = "SELECT image_id, unnest(kept).n AS was, unnest(range(1, len(kept) + 1)) AS place FROM left_texts"
    lake.execute(f"""INSERT INTO edited_texts BY NAME SELECT m.* REPLACE ('text' || p.place AS field) FROM moved_edits m
        JOIN ({places}) p ON p.image_id = m.image_id AND m.field = 'text' || p.was""")


def changed_versions(lake: Lake) -> Iterator[Damage]:
    """Yield a damage for each version whose pairs were changed by more than its recorded removals. Reads all pairs."""
    for dataset in published(lake):
        if not is_as_published(lake, dataset):
            text = f"the pairs of {dataset} are not those that were published"
            yield Damage("damaged", "pairs", text, dataset.n_pairs)


def is_as_published(lake: Lake, dataset: Dataset) -> bool:
    """Return whether a version has exactly the pairs that were published, minus its recorded removals."""
    if _version_digest(lake, dataset) != dataset.content_digest:
        return False
    if not dataset.amended:
        return True
    sql = """SELECT a.digest_before FROM amended_versions a JOIN takedowns t USING (takedown_id)
        WHERE a.dataset = ? AND a.version = ? ORDER BY t."commit" LIMIT 1"""
    first = lake.query(sql, (dataset.name, dataset.version))
    return bool(first) and _digest_before(lake, dataset) == first[0][0]


def _version_digest(lake: Lake, dataset: Dataset) -> str:
    """Hash the pairs of a version as they were hashed when it was published (`catalog.cut.publication`)."""
    digest = _row_digest("p", dataset)
    return _digest(lake, f"SELECT sha256, {digest} AS digest FROM pairs p WHERE {dataset.where}")


def _digest_before(lake: Lake, dataset: Dataset) -> str:
    """Return the digest of a version before all its removals, computed from the rows left and the recorded digests."""
    digest = _row_digest("p", dataset)
    return _digest(
        lake,
        f"WITH held AS (SELECT sha256, {digest} AS digest FROM pairs p WHERE {dataset.where}), "
        f"told AS (SELECT sha256, before, after FROM amended_pairs WHERE {dataset.where}) "
        "SELECT sha256, digest FROM held WHERE digest NOT IN (SELECT after FROM told WHERE after IS NOT NULL) "
        "UNION ALL SELECT sha256, before FROM told WHERE before NOT IN "
        "(SELECT after FROM told WHERE after IS NOT NULL)",  # a later removal changed what an earlier one had changed
    )


def _row_digest(alias: str, dataset: Dataset) -> str:
    """Return SQL for the digest of one pair, over its columns in the order of `catalog.cut.publication`."""
    hashed = (
        "sha256", "raw_image_url", *text_columns.texts(dataset.n_texts), "syn_text", "caption", "alt_text", "tags",
        "width", "height", *text_columns.similarities(dataset.n_texts), "best_similarity", "cluster",
        "caption_status", "synthetic_status", "caption_similarity", "synthetic_similarity", *dataset.optional_columns,
    )  # fmt: skip
    columns = ", ".join(f"{name} := {alias}.{name}" for name in hashed)
    return f"sha256(CAST(to_json(struct_pack({columns})) AS VARCHAR))"


def _digest(lake: Lake, rows: str) -> str:
    """Hash rows (sha256, digest) in their order, to 32 hex digits."""
    found = hashlib.sha256()
    for batch in lake.blocks(f"SELECT digest FROM ({rows}) ORDER BY sha256, digest", rows=100_000):
        found.update("".join(batch["digest"].to_pylist()).encode())
    return found.hexdigest()[:32]
