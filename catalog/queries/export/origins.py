"""Count where the pictures of an export come from, and list the licences that came along with their documents."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.datasets import Dataset

MOST = 100  # hosts and licences that are listed, by their number of rows


def rows_of_pairs(dataset: Dataset) -> str:
    """Return SQL for the address and the document of each pair of a version."""
    return (
        "SELECT raw_image_url AS url, document_id FROM pairs "
        f"WHERE dataset = {quoted(dataset.name)} AND version = {dataset.version}"
    )


def web_hosts(lake: Lake, rows: str) -> list[str]:
    """Return the addresses of the MOST web hosts with most rows, such as `https://example.org`.

    ``rows`` is a query with the column ``url``.
    """
    hosts = f"SELECT regexp_extract(url, '^https?://[^/?#]+') AS host FROM ({rows})"
    most = f"SELECT host FROM ({hosts}) WHERE host <> '' GROUP BY host ORDER BY count(*) DESC, host LIMIT {MOST}"
    return [host for (host,) in lake.query(most)]


def licences(lake: Lake, rows: str) -> list[str]:
    """Return the MOST licences with most rows, as `documents.metadata` names them; the lake does not judge them.

    ``rows`` is a query with the column ``document_id``.
    """
    named = [f"json_extract_string(coalesce(nullif(d.metadata, ''), '{{}}'), '{path}')" for path in _PATHS]
    documents = "SELECT document_id, min(metadata) AS metadata FROM documents GROUP BY document_id"
    found = f"SELECT coalesce({', '.join(named)}) AS licence FROM ({rows}) p JOIN ({documents}) d USING (document_id)"
    most = f"GROUP BY licence ORDER BY count(*) DESC, licence LIMIT {MOST}"
    return [licence for (licence,) in lake.query(f"SELECT licence FROM ({found}) WHERE licence <> '' {most}")]


_PATHS = ("$.license", '$."dcterms.license"', "$.rights", '$."dc.rights"', '$."dcterms.rights"')
