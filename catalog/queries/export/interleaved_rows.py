"""Select the kept pictures and sentences of each document of a version, in reading order."""

from pairmill.catalog.cut.released_address import released_pages
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import AFTER_ALL, sentence_rows
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of

SHARDS_OF_ITEMS = "SELECT DISTINCT shard FROM (SELECT unnest(items).shard AS shard FROM export_rows) WHERE shard > ''"


def kept_pictures(dataset: Dataset) -> str:
    """Return SQL for the version's pairs, each with its reading order in the document and the shard of its picture."""
    # A document that was read again has rows of both times, under the same ids.
    return (
        "SELECT p.document_id, i.reading_order, p.image_id, p.sha256, p.raw_image_url, p.alt_text, p.caption, "
        "p.syn_text, p.width, p.height, c.shard, c.format, c.n_bytes FROM pairs p JOIN "
        "(SELECT image_id, max(reading_order) AS reading_order FROM images GROUP BY image_id) i USING (image_id) "
        "LEFT JOIN image_content c ON c.sha256 = p.sha256 "
        f"WHERE p.dataset = {quoted(dataset.name)} AND p.version = {dataset.version}"
    )


def gather_documents(lake: Lake, dataset: Dataset) -> None:
    """Copy the documents of the version's pairs into the table ``export_rows``.

    A row has document_id, page (its released address), title, metadata and ``items``: structs in reading order, each a
    kept picture with its pair's columns, or ``text``, the sentences of one paragraph that pass the version's rules. A
    near copy of another sentence stays, because the text around it needs it. Rows are numbered from 0, in the order of
    the shards of their pictures. ``sample_bytes`` is an upper bound of a row's size.
    """
    ordered = kept_pictures(dataset)
    lake.execute(f"CREATE OR REPLACE TEMP TABLE kept_pictures AS {ordered}")
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE said_sentences AS SELECT document_id, max(reading_order) AS reading_order, "
        "min(position) AS position, any_value(text) AS text, any_value(content) AS content FROM sentences "
        "SEMI JOIN kept_pictures USING (document_id) GROUP BY document_id, sentence_id"
    )
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE said_contents AS "
        "SELECT content, min(text) AS text, NULL::VARCHAR AS shard FROM said_sentences GROUP BY content"
    )
    lake.execute(_documents(sentence_rows(plan_of(lake, dataset), AFTER_ALL, dataset.commit, "said_contents")))
    for table in ("kept_pictures", "said_sentences", "said_contents"):
        lake.execute(f"DROP TABLE temp.{table}")


def _documents(passing: str) -> str:
    """Return the statement that makes ``export_rows`` of the gathered pictures and the sentences in ``passing``."""
    paragraphs = (
        "SELECT document_id, reading_order, string_agg(text, ' ' ORDER BY position) AS text FROM said_sentences "
        f"SEMI JOIN (SELECT content FROM ({passing}) WHERE dropped_by = '') USING (content) GROUP BY ALL"
    )
    each = f"(SELECT * FROM kept_pictures UNION ALL BY NAME {paragraphs})"
    item = ", ".join(
        f"{name} := {name}"
        for name in ("text", "image_id", "sha256", "raw_image_url", "alt_text", "caption", "syn_text", "width",
                     "height", "shard", "format")
    )  # fmt: skip
    texts = " + ".join(f"coalesce(strlen({name}), 0)" for name in ("text", "raw_image_url", "alt_text", "caption"))
    documents = (
        f"SELECT document_id, list(struct_pack({item}) ORDER BY reading_order) AS items, min(shard) AS shard, "
        f"sum(coalesce(n_bytes, 0) + 3 * ({texts} + coalesce(strlen(syn_text), 0)) + 512) AS item_bytes "
        f"FROM {each} GROUP BY document_id"
    )
    about = (
        "SELECT document_id, min(title) AS title, min(metadata) AS metadata FROM documents "
        "SEMI JOIN kept_pictures USING (document_id) GROUP BY document_id"
    )
    return (
        "CREATE OR REPLACE TEMP TABLE export_rows AS SELECT d.*, p.page, a.title, a.metadata, "
        "CAST(item_bytes + coalesce(strlen(a.metadata), 0) AS BIGINT) AS sample_bytes, "
        "row_number() OVER (ORDER BY d.shard, document_id) - 1 AS n "
        f"FROM ({documents}) d LEFT JOIN ({released_pages('SELECT document_id FROM kept_pictures')}) p "
        f"USING (document_id) LEFT JOIN ({about}) a USING (document_id) ORDER BY n"
    )
