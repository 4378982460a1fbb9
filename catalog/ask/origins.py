"""Count where a version's pictures come from, and list the licences that came along with its documents."""

from pairmill.catalog.ask.datasets import Dataset
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted

MOST = 100  # hosts and licences that are listed, by their number of pairs


def web_hosts(lake: Lake, dataset: Dataset) -> list[str]:
    """Return the addresses of the MOST web hosts with most pairs, such as `https://example.org`."""
    host = "regexp_extract(raw_image_url, '^https?://[^/?#]+')"
    hosts = f"SELECT {host} AS host FROM pairs WHERE {_of(dataset)}"
    most = f"SELECT host FROM ({hosts}) WHERE host <> '' GROUP BY host ORDER BY count(*) DESC, host LIMIT {MOST}"
    return [host for (host,) in lake.query(most)]


def licences(lake: Lake, dataset: Dataset) -> list[str]:
    """Return the MOST licences with most pairs, as `documents.metadata` names them; the lake does not judge them."""
    named = [f"json_extract_string(coalesce(nullif(d.metadata, ''), '{{}}'), '{path}')" for path in _PATHS]
    documents = "SELECT document_id, min(metadata) AS metadata FROM documents GROUP BY document_id"
    found = f"SELECT coalesce({', '.join(named)}) AS licence FROM pairs p JOIN ({documents}) d USING (document_id)"
    most = f"GROUP BY licence ORDER BY count(*) DESC, licence LIMIT {MOST}"
    rows = lake.query(f"SELECT licence FROM ({found} WHERE {_of(dataset)}) WHERE licence <> '' {most}")
    return [licence for (licence,) in rows]


_PATHS = ("$.license", '$."dcterms.license"', "$.rights", '$."dc.rights"', '$."dcterms.rights"')


def _of(dataset: Dataset) -> str:
    """Return SQL of the condition that a pair is of this version."""
    return f"dataset = {quoted(dataset.name)} AND version = {dataset.version}"
