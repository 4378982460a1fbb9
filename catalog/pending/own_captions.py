"""List the captions that came along with pictures: those whose rows in `captions` are missing or of an earlier text.

A reader that reads captions as captions stores the caption of a document with one picture in the document's metadata,
under OWN_CAPTION. A picture of several documents has the caption of the first by image id. Every picture has a row,
with an empty text where no document has a caption; the newest row of a picture counts.
"""

from collections import defaultdict
from collections.abc import Iterator

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.superseded import gone_documents
from pairmill.catalog.pending.worklist import items_by_shard

OWN_CAPTION = "own_caption"  # the key in `documents.metadata`


def pending_own_captions(lake: Lake, scorer: str) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items by home shard: pictures whose own caption is not in ``scorer``'s newest row.

    The input ``texts`` has the captions, '' for none; ``before`` the commit of the newest row, for `WorkItem.digest`.
    """
    documents = (
        f"SELECT document_id, json_extract_string(metadata, '$.{OWN_CAPTION}') AS text FROM documents "
        f"WHERE contains(metadata, '\"{OWN_CAPTION}\"') AND document_id NOT IN {gone_documents()}"
    )
    shown = f"images JOIN ({documents}) USING (document_id)"
    own = f"SELECT sha256, arg_min(text, image_id) AS text FROM {shown} GROUP BY sha256"
    newest = (
        'SELECT sha256, arg_max(text, "commit") AS text, max("commit") AS since FROM captions '
        f"WHERE scorer = '{scorer}' GROUP BY sha256"
    )
    sql = (
        "SELECT c.shard, c.sha256 AS key, coalesce(o.text, '') AS texts, coalesce(n.since, -1) AS before "
        f"FROM image_content c LEFT JOIN ({own}) o USING (sha256) LEFT JOIN ({newest}) n USING (sha256) "
        "WHERE n.text IS DISTINCT FROM coalesce(o.text, '')"
    )
    return items_by_shard(lake, sql, lambda shards: defaultdict(tuple), ("texts", "before"))
