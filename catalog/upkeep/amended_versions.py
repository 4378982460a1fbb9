"""Take removed pictures and borrowed sentences out of published versions, and record it so that it can be checked.

Each pair that is taken out or changed leaves the digest of its row before and after. With these, the digest that the
version was published with can be computed again from the rows that are left (`digest_before`): so it is proven that
nothing else of the version has changed.
"""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.compare.amended_digest import n_texts, row_digest, version_digest
from pairmill.catalog.terms import text_columns

_PAIR = "p.dataset = ? AND p.version = ?"
_GIVEN = " OR ".join(f"{name} IN (SELECT text FROM taken_sentences)" for name in text_columns.texts())


@dataclass(frozen=True)
class Amended:
    """A version that a removal changed: pairs that were taken out, and pairs that lost a borrowed text."""

    dataset: str
    version: int
    pairs_removed: int
    pairs_changed: int

    @property
    def name(self) -> str:
        """``NAME@VERSION``."""
        return f"{self.dataset}@{self.version}"


def touched(lake: Lake) -> list[tuple[str, int]]:
    """Return the versions with a taken picture among their decisions, or a taken text among their pairs."""
    decided = "SELECT DISTINCT dataset, version FROM decisions WHERE item_id IN (SELECT image_id FROM taken_images)"
    paired = (
        "SELECT DISTINCT dataset, version FROM pairs WHERE image_id IN (SELECT image_id FROM taken_images) "
        f"OR (sha256, syn_text) IN (SELECT (sha256, text) FROM taken_fused) OR {_GIVEN}"
    )
    return lake.query(
        f"SELECT t.dataset, t.version FROM ({decided} UNION {paired}) t SEMI JOIN datasets d ON t.dataset = d.name "
        "AND t.version = d.version ORDER BY ALL"
    )


def amend(lake: Lake, dataset: str, version: int, takedown_id: str) -> Amended:
    """Amend one version, within a transaction of the caller; `decisions` and scores are deleted by `taken_rows`.

    A pair loses its taken texts, and those after them move up; a pair without a text left goes. A fused text that may
    be made from a taken sentence becomes NULL.
    """
    key = (dataset, version)
    before = version_digest(lake, dataset, version)
    n = n_texts(lake, *key)
    columns = tuple(zip(text_columns.texts(n), text_columns.similarities(n), strict=True))
    row = row_digest("p", n)
    lake.execute(f"CREATE OR REPLACE TEMP TABLE amending AS SELECT p.*, {row} AS before FROM pairs p WHERE {_PAIR} AND "
                 f"(image_id IN (SELECT image_id FROM taken_images) OR {_GIVEN} OR "
                 "(sha256, syn_text) IN (SELECT (sha256, text) FROM taken_fused))", key)  # fmt: skip
    packed = ", ".join(f"struct_pack(n := {at}, t := {text}, s := {alike})" for at, (text, alike) in enumerate(columns))
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE left_texts AS SELECT image_id, list(x ORDER BY x.n) AS kept FROM "
        f"(SELECT image_id, unnest([{packed}]) AS x FROM amending) WHERE x.t IS NOT NULL AND x.t NOT IN "
        "(SELECT text FROM taken_sentences) GROUP BY image_id"
    )
    texts = ", ".join(
        f"l.kept[{place}].t AS {text}, l.kept[{place}].s AS {alike}" for place, (text, alike) in enumerate(columns, 1)
    )
    fused = "(a.sha256, a.syn_text) IN (SELECT (sha256, text) FROM taken_fused)"
    replaced = (
        f"SELECT a.* EXCLUDE (before) REPLACE ({texts}, CASE WHEN NOT {fused} THEN syn_text END AS syn_text, "
        f"CASE WHEN NOT {fused} THEN synthetic_similarity END AS synthetic_similarity) FROM amending a "
        "JOIN left_texts l USING (image_id) WHERE image_id NOT IN (SELECT image_id FROM taken_images)"
    )
    lake.execute(f"CREATE OR REPLACE TEMP TABLE amended AS {replaced}")
    lake.execute(f"DELETE FROM pairs p WHERE {_PAIR} AND image_id IN (SELECT image_id FROM amending)", key)
    lake.execute("INSERT INTO pairs BY NAME SELECT * FROM amended ORDER BY image_id")
    lake.execute(
        "INSERT INTO amended_pairs BY NAME SELECT a.dataset, a.version, ? AS takedown_id, a.sha256, a.before, "
        f"n.after FROM amending a LEFT JOIN (SELECT image_id, {row_digest('amended', n)} AS after FROM amended) n "
        "USING (image_id)",
        (takedown_id,),
    )
    changed = lake.query("SELECT count(*) FROM amended")[0][0]
    removed = lake.query("SELECT count(*) FROM amending")[0][0] - changed
    after = version_digest(lake, dataset, version)
    lake.execute("INSERT INTO amended_versions VALUES (?, ?, ?, ?, ?, ?, ?)",
                 (*key, takedown_id, before, after, removed, changed))  # fmt: skip
    lake.execute("UPDATE datasets SET amended = true, content_digest = ?, n_pairs = n_pairs - ? "
                 "WHERE name = ? AND version = ?", (after, removed, *key))  # fmt: skip
    return Amended(dataset, version, removed, changed)
