"""Delete the artifacts of runs that show what a takedown removes: small pictures, addresses and texts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pairmill.catalog.lake.lake import Lake
from pairmill.flows.with_prefect.artifact_texts import plain
from pairmill.flows.with_prefect.local_prefect import answers, known_server

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import Artifact

AT_ONCE = 200  # artifacts in one answer of Prefect's API, its most
_ID = re.compile(r"\b[0-9a-f]{32}\b")
# A heading of a pair; an address or a column with its text: see `flows.with_prefect.artifacts`.
_SAID = re.compile(r"^## (.+)$|\*\*(.+?)\*\*: (.*?)(?: \([a-z_\\]+\))?$", re.MULTILINE)


@dataclass(frozen=True)
class TakenNames:
    """What artifacts show of taken items: ``ids`` of pictures and their occurrences, escaped addresses and texts."""

    ids: frozenset[str]
    said: frozenset[str]

    def are_in(self, markdown: str) -> bool:
        """Return whether an artifact shows one of them."""
        said = (part for match in _SAID.findall(markdown) for part in match)
        return not self.ids.isdisjoint(_ID.findall(markdown)) or any(part in self.said for part in said)


def taken_names(lake: Lake) -> TakenNames:
    """Read the names of what `catalog.upkeep.taken_items.select` found; call it before the rows are deleted."""
    ids = "SELECT image_id FROM taken_images UNION SELECT sha256 FROM taken_pictures"
    said = (
        "SELECT text FROM taken_sentences UNION SELECT text FROM taken_fused "
        "UNION SELECT url FROM images SEMI JOIN taken_images USING (image_id) "
        "UNION SELECT raw_image_url FROM pairs SEMI JOIN taken_images USING (image_id)"
    )
    return TakenNames(
        frozenset(each for (each,) in lake.query(ids)), frozenset(plain(each) for (each,) in lake.query(said) if each)
    )


def remove_artifacts(taken: TakenNames) -> str:
    """Delete every artifact that shows a taken item; return a sentence on what was done, or could not be.

    The server is that of PREFECT_API_URL or a profile, else that of a running `pairmill up`.
    """
    from httpx import HTTPError
    from prefect.client.orchestration import get_client  # 1.3 s
    from prefect.exceptions import PrefectException
    from prefect.settings import PREFECT_API_URL, temporary_settings

    api = known_server()
    if not api:
        return "artifacts: no Prefect server is known, so none was looked for"
    if not answers(api):
        return f"artifacts: Prefect's server {api} does not answer; delete the runs' artifacts there"
    try:
        with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
            found = [each.id for each in _artifacts(client) if isinstance(each.data, str) and taken.are_in(each.data)]
            for artifact_id in found:
                client.delete_artifact(artifact_id)
    except (HTTPError, PrefectException) as error:
        why = " ".join(str(error).split())[:200]
        return f"artifacts: Prefect's server {api} refused ({why}); delete the runs' artifacts there"
    return f"artifacts: {len(found):,} removed at Prefect's server {api}"


def _artifacts(client: "SyncPrefectClient") -> "Iterator[Artifact]":
    """Yield all Markdown artifacts of the server."""
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterType

    offset = 0
    while True:
        markdown = ArtifactFilter(type=ArtifactFilterType(any_=["markdown"]))
        some = client.read_artifacts(artifact_filter=markdown, limit=AT_ONCE, offset=offset)
        yield from some
        if len(some) < AT_ONCE:
            return
        offset += AT_ONCE
