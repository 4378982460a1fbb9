"""Find what a takedown removes: pictures, their occurrences, documents, and the sentences that only those hold.

The matches are temporary tables of the connection, which DuckDB spills to disk where memory is insufficient:

- ``taken_documents(document_id)``: named by id, by address, or of a named host;
- ``taken_pictures(sha256)``: named by content or address, of a named host, or held by taken documents alone;
- ``taken_images(image_id)``: every occurrence of a taken picture, wherever it is, and those of taken documents;
- ``taken_sentences(content, text)``: sentences that no other document holds;
- ``taken_fused(sha256, input_digest, text)``: fused texts of other pictures that were made from a taken sentence.

A picture that was taken for its content or address goes from every page that shows it. A document's picture that
another page shows too stays there, as does a sentence that another page holds.
"""

from dataclasses import dataclass

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.generated import fusion_digest

TABLES = ("taken_documents", "taken_pictures", "taken_images", "taken_sentences", "taken_fused")
_HOST = "lower(regexp_extract({0}, '^[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#@]*@)?([^/?#:]+)', 2))"


@dataclass(frozen=True)
class Subject:
    """What an owner asks to remove.

    ``urls`` are addresses of pictures or documents, with everything below an address that ends in a slash; ``hosts``
    include their subdomains; ``pictures`` are ids (32 hex digits of the sha256), ``documents`` ids of documents.
    """

    urls: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Taken:
    """The number of distinct items of each kind that a takedown removes."""

    documents: int
    pictures: int
    images: int
    sentences: int
    fused: int

    @property
    def is_nothing(self) -> bool:
        """Whether nothing of the lake matches."""
        return not (self.documents or self.pictures or self.images)


def select(lake: Lake, subject: Subject) -> Taken:
    """Create the temporary tables of what ``subject`` names, and count them.

    Takes one pass over ``documents`` and ``images``, and over ``sentences`` if a document is taken: 30 million images
    and 800 million sentences are read in minutes, and what is found is held on disk.
    """
    for name, values in (("urls", subject.urls), ("hosts", [host.lower() for host in subject.hosts]),
                         ("pictures", subject.pictures), ("documents", subject.documents)):  # fmt: skip
        lake.connection.register("asked", pa.table({"value": pa.array(list(values), pa.string())}))
        lake.execute(f"CREATE OR REPLACE TEMP TABLE asked_{name} AS SELECT value FROM asked")
        lake.connection.unregister("asked")
    _create(lake, "taken_documents", f"SELECT DISTINCT document_id FROM documents WHERE {named('uri')} "
            "OR document_id IN (SELECT value FROM asked_documents)")  # fmt: skip
    asked = f"SELECT sha256 FROM images WHERE {named('url')} UNION SELECT value FROM asked_pictures"
    if "fetches" in lake.tables:
        asked += f" UNION SELECT sha256 FROM fetches WHERE sha256 <> '' AND ({named('url')} OR {named('final_url')})"
    ours = "SELECT sha256 FROM images WHERE document_id IN (SELECT document_id FROM taken_documents)"
    alone = (
        f"SELECT sha256 FROM images WHERE sha256 IN ({ours}) GROUP BY sha256 "
        "HAVING bool_and(document_id IN (SELECT document_id FROM taken_documents))"
    )
    held = "SELECT sha256 FROM payloads UNION SELECT sha256 FROM images"
    _create(lake, "taken_pictures", f"SELECT sha256 FROM ({asked} UNION {alone}) SEMI JOIN ({held}) USING (sha256)")
    _create(lake, "taken_images", "SELECT DISTINCT image_id FROM images WHERE sha256 IN (SELECT sha256 FROM "
            "taken_pictures) OR document_id IN (SELECT document_id FROM taken_documents)")  # fmt: skip
    _select_sentences(lake)
    return Taken(*(lake.query(f"SELECT count(*) FROM {name}")[0][0] for name in TABLES))


def selected(lake: Lake, table: str, column: str) -> set[str]:
    """Return the values of a column of one of TABLES, which `select` has created."""
    return {value for (value,) in lake.query(f"SELECT {column} FROM {table}")}


def _select_sentences(lake: Lake) -> None:
    """Create ``taken_sentences`` and ``taken_fused``."""
    here = "document_id IN (SELECT document_id FROM taken_documents)"
    of_documents = f"SELECT content FROM sentences WHERE {here}"
    alone = f"SELECT content FROM sentences WHERE content IN ({of_documents}) GROUP BY content HAVING bool_and({here})"
    texts = "SELECT content, text FROM sentence_content UNION SELECT content, text FROM sentences"
    _create(
        lake, "taken_sentences", f"SELECT DISTINCT content, text FROM ({texts}) SEMI JOIN ({alone}) USING (content)"
    )
    caption = "SELECT sha256, text FROM captions WHERE status = 'ok' UNION SELECT sha256, '' FROM synthetic"
    tag = "SELECT sha256, tags FROM tags UNION SELECT sha256, [] FROM synthetic"
    given = f"""SELECT DISTINCT m.sha256, {fusion_digest("c.text", "g.tags", "t.text")} AS input_digest
        FROM match_candidates m JOIN taken_sentences t USING (content) JOIN ({caption}) c USING (sha256)
        JOIN ({tag}) g USING (sha256)"""
    _create(lake, "taken_fused", "SELECT DISTINCT sha256, input_digest, synthetic_text AS text FROM synthetic "
            f"SEMI JOIN ({given}) USING (sha256, input_digest) ANTI JOIN taken_pictures USING (sha256)")  # fmt: skip


def _create(lake: Lake, name: str, sql: str) -> None:
    """Create one of the temporary tables."""
    lake.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")


def named(column: str) -> str:
    """Return SQL for whether an address is named, is below a named one, or is of a named host."""
    host = _HOST.format(column)
    return (
        f"({column} IN (SELECT value FROM asked_urls) "
        f"OR EXISTS (SELECT 1 FROM asked_urls u WHERE u.value LIKE '%/' AND starts_with({column}, u.value)) "
        f"OR EXISTS (SELECT 1 FROM asked_hosts h WHERE {host} = h.value OR ends_with({host}, '.' || h.value)))"
    )
