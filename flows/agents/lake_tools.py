"""Answer an agent's questions about a lake: each call opens the lake for reading, and returns what JSON can hold."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import holder_of
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.explain.why import scope_of
from pairmill.catalog.queries.explain.why_document import explain_document
from pairmill.catalog.queries.explain.why_image import explain_image
from pairmill.catalog.queries.explain.why_sentence import explain_sentence
from pairmill.catalog.queries.figures import holdings
from pairmill.catalog.queries.sql.sql_answer import answer_confined
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write import runs
from pairmill.flows.api.asked_item import dataset_about, find_item
from pairmill.flows.api.json_value import json_value

ROWS = 200  # of one answer; an agent's context holds some 100 kB
CHARACTERS = 2_000  # of one text
SECONDS = 60.0  # of one statement
RUNS = 5


@dataclass(frozen=True)
class LakeTools:
    """The questions about the lake at ``place``. Nothing is written; SQL reads the lake's own files alone.

    Each method raises PairmillError with a remedy.
    """

    place: str

    def sql(self, query: str) -> dict[str, Any]:
        """Run one SELECT over the lake's tables (DuckDB's SQL); return the columns and at most 200 rows."""
        with self._open() as lake, _limited(lake):
            columns, found = answer_confined(lake, query)
            rows = [_short(row) for row in islice(found, ROWS + 1)]
        return {"columns": columns, "rows": rows[:ROWS], "more": len(rows) > ROWS}

    def why(self, item: str, dataset: str = "") -> dict[str, Any]:
        """Explain one item: its origin, its scores, and the rule that dropped it.

        Args:
            item: An id, a sha256, the address of a picture or page, or a sentence's text.
            dataset: A version such as 30m@3; by default the newest that decided on the item.
        """
        with self._open() as lake, _limited(lake), lake.one_snapshot():
            found = find_item(lake, item)
            scope = scope_of(lake, dataset_about(lake, found, dataset))
            if found.images:
                return _short(explain_image(lake, found.images[0], scope))
            if found.sentences:
                return _short(explain_sentence(lake, found.sentences[0], scope))
            if found.documents:
                return _short(explain_document(lake, found.documents[0], scope))
            return _short({"addresses": found.addresses, "quarantine": found.quarantine})

    def status(self) -> dict[str, Any]:
        """Return row counts, dataset versions, the process that writes now, and the last runs."""
        with self._open() as lake, _limited(lake):
            holder = holder_of(lake.metadata)
            versions = [
                {"dataset": str(each), "pairs": each.n_pairs, "recall": each.recall, "created": each.created_at}
                for each in datasets.published(lake)
            ]
            last = [asdict(run) for run in runs.latest(lake, RUNS)]
            counts = holdings.counts(lake)
        writer = str(holder) if holder and not holder.is_dead() else None
        return _short({"rows": counts, "datasets": versions, "writer": writer, "runs": last})

    def funnel(self, dataset: str) -> dict[str, Any]:
        """Return how many pictures and sentences each rule of a version got and dropped, in order."""
        with self._open() as lake, _limited(lake):
            found = datasets.find(lake, dataset)
            return {"dataset": str(found), "steps": [asdict(step) for step in datasets.funnel(lake, found)]}

    def sample(self, dataset: str, n: int = 5) -> dict[str, Any]:
        """Return some pairs of a version, with their texts and similarities: always the same, at most 50."""
        if not 1 <= n <= 50:
            raise PairmillError(f"n is {n}; ask for 1 to 50 pairs.")
        with self._open() as lake, _limited(lake):
            found = datasets.find(lake, dataset)
            return _short({"dataset": str(found), "pairs": datasets.sample_pairs(lake, found, n)})

    def _open(self) -> Lake:
        """Open the lake for one call: `answer_confined` confines it for good."""
        return create_or_open(self.place, read_only=True)


@contextmanager
def _limited(lake: Lake) -> Iterator[None]:
    """Interrupt the body's statement after SECONDS, and raise PairmillError then."""
    is_late = threading.Event()

    def interrupt() -> None:
        is_late.set()
        lake.connection.interrupt()

    timer = threading.Timer(SECONDS, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if is_late.is_set():
            raise PairmillError(f"stopped after {SECONDS:g} s; ask for less, by a WHERE or a sample.") from error
        raise
    finally:
        timer.cancel()


def _short(value: Any) -> Any:
    """Convert a value for JSON, with texts cut at CHARACTERS and lists at ROWS."""
    if isinstance(value, dict):
        return {str(key): _short(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value[:ROWS]]
    found = json_value(value)
    cut = isinstance(found, str) and len(found) > CHARACTERS
    return f"{found[:CHARACTERS]}… ({len(found):,} characters)" if cut else found
