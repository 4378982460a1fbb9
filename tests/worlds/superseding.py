"""Ingest a folder into a lake beside it, and list the texts and images that count at a commit."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pairmill.catalog.pending.eligible import image_rows, sentence_rows
from pairmill.catalog.terms.score import Stage
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.run.session import Session
from tests.worlds.shared import new_lake


@contextmanager
def ingested(place: Path, *sources: str, language: str = "en", case: str = "keep") -> Iterator[Session]:
    """Ingest the folder 'pages' of ``place``, or else ``sources``, into the lake beside it; yield the session."""
    read_as = {"ingest.documents_per_shard": "2", "ingest.language": language, "ingest.case": case}
    recipe = load_recipe("demo", read_as)
    uris, compute = sources or (str(place / "pages"),), Compute.model_validate({"workers": 1})
    with session(recipe, uris, str(new_lake(place / "lake")), compute) as held:
        ingest(held)
        yield held


def alive(held: Session, upto: int | None = None) -> tuple[set[str], set[str]]:
    """Return the texts and image names that count at a commit."""
    sentences = held.lake.query(f"SELECT text FROM ({sentence_rows(held.plan, Stage.INGEST, upto)})")
    images = held.lake.query(f"SELECT url FROM ({image_rows(held.plan, Stage.INGEST, upto)})")
    return {row[0] for row in sentences}, {row[0].rpartition("/")[2] for row in images}


def newest(held: Session) -> int:
    """Return the newest commit number."""
    return held.lake.query('SELECT max("commit") FROM commits')[0][0]
