"""Make a small world for trials that interrupt runs: pages, tiny models, and the command that curates them."""

import subprocess
import sys
from pathlib import Path

from pairmill.catalog.lake.opening import create_or_open
from tests.worlds import generated, shared

ROOT = Path(__file__).resolve().parents[2]
DATASETS = "SELECT version, content_digest FROM datasets WHERE name = 'demo' ORDER BY version"


class TrialWorld:
    """Make pages and tiny models below ``folder``, and the command lines of runs over them.

    A shard has ``per_shard`` documents. With few, an interrupted run has finished some of its shards.
    """

    def __init__(self, folder: Path, documents: int, seed: int = 13, per_shard: int = 2) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shared.PLACE = folder
        self.pages = generated.world(seed, documents)
        self._settings = generated.small_settings() | {"ingest.documents_per_shard": str(per_shard)}

    def command(self, lake: Path | str, *more: str) -> list[str]:
        """Return the command line of a run that curates the pages into ``lake``."""
        return self.pairmill("run", "demo", "--source", str(self.pages), "--lake", str(lake), *self._sets(), *more)

    def retry(self, lake: Path | str) -> list[str]:
        """Return the command line that tries truncated pictures again."""
        return self.pairmill("run", "demo", "--retry", "truncated", "--lake", str(lake), *self._sets())

    def _sets(self) -> list[str]:
        return [f"--set={key}={value}" for key, value in self._settings.items()]

    @staticmethod
    def pairmill(*arguments: str) -> list[str]:
        """Return a command line of `pairmill` by this interpreter."""
        return [sys.executable, "-m", "pairmill.flows.command.cli", *arguments]

    def run(self, lake: Path | str, *more: str) -> None:
        """Curate the pages into ``lake``, without an interruption."""
        subprocess.run(self.command(lake, *more), check=True, capture_output=True, cwd=ROOT, timeout=600)


def digests(lake: Path | str) -> list[tuple]:
    """Return the versions of a lake's dataset with the digests of their content."""
    with create_or_open(str(lake), read_only=True) as opened:
        return opened.query(DATASETS)
