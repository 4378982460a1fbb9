"""Compute the digest of a version's pairs, and the digest that an amended version had before its removals."""

import hashlib

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms import text_columns

_PAIR = "p.dataset = ? AND p.version = ?"


def version_digest(lake: Lake, dataset: str, version: int) -> str:
    """Hash the pairs of a version as they were hashed when it was published (`catalog.cut.publication`)."""
    digest = row_digest("p", n_texts(lake, dataset, version))
    rows = f"SELECT sha256, {digest} AS digest FROM pairs p WHERE {_PAIR}"
    return _digest(lake, rows, (dataset, version))


def digest_before(lake: Lake, dataset: str, version: int) -> str:
    """Return the digest of a version before all its removals, computed from the rows left and the recorded digests."""
    digest = row_digest("p", n_texts(lake, dataset, version))
    recorded = "SELECT sha256, before, after FROM amended_pairs WHERE dataset = ? AND version = ?"
    rows = (
        f"WITH held AS (SELECT sha256, {digest} AS digest FROM pairs p WHERE {_PAIR}), told AS ({recorded}) "
        "SELECT sha256, digest FROM held WHERE digest NOT IN (SELECT after FROM told WHERE after IS NOT NULL) "
        "UNION ALL SELECT sha256, before FROM told WHERE before NOT IN "
        "(SELECT after FROM told WHERE after IS NOT NULL)"  # a later removal changed what an earlier one had changed
    )
    return _digest(lake, rows, (dataset, version) * 2)


def n_texts(lake: Lake, dataset: str, version: int) -> int:
    """Return the number of text columns of a version."""
    ((recipe,),) = lake.query("SELECT recipe FROM datasets WHERE name = ? AND version = ?", (dataset, version))
    return text_columns.count_in(recipe)


def row_digest(alias: str, n_texts: int) -> str:
    """Return SQL for the digest of one pair, over its columns in the order of `catalog.cut.publication`."""
    hashed = (
        "sha256", "raw_image_url", *text_columns.texts(n_texts), "syn_text", "caption", "alt_text", "tags", "width",
        "height", *text_columns.similarities(n_texts), "best_similarity", "cluster", "caption_status",
        "synthetic_status", "caption_similarity", "synthetic_similarity",
    )  # fmt: skip
    columns = ", ".join(f"{name} := {alias}.{name}" for name in hashed)
    return f"sha256(CAST(to_json(struct_pack({columns})) AS VARCHAR))"


def _digest(lake: Lake, rows: str, params: tuple) -> str:
    """Hash rows (sha256, digest) in their order, to 32 hex digits."""
    found = hashlib.sha256()
    for batch in lake.blocks(f"SELECT digest FROM ({rows}) ORDER BY sha256, digest", params, rows=100_000):
        found.update("".join(batch["digest"].to_pylist()).encode())
    return found.hexdigest()[:32]
