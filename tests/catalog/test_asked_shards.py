"""Work lists that skip recorded shards against the plain join, on random histories of a lake."""

from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.metadata import ASKED
from pairmill.catalog.pending import asked_shards
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_sentences
from pairmill.catalog.terms.score import Stage
from tests.catalog.test_worklist import columns, fresh, insert, plan
from tests.examples import examples

TEXT = {"content": pa.string(), "shard": pa.string()}
SCORED = {**TEXT, "scorer": pa.string()}
TABLES = ("sentences", "sentence_content", "sentence_quality", "sentence_embedding", "superseded", "takedowns")
NUMBER = st.integers(0, 5)
ACTS = st.one_of(
    st.tuples(st.just("ingest"), st.lists(NUMBER, min_size=1, max_size=4)),
    st.tuples(st.just("home"), st.just(0)),
    st.tuples(st.just("score"), st.lists(st.tuples(NUMBER, st.sampled_from([1, 9])), min_size=1, max_size=6)),
    st.tuples(st.just("answer"), st.integers(0, 9)),
    st.tuples(st.just("retry"), NUMBER),
    st.tuples(st.just("gone"), st.tuples(NUMBER, st.booleans())),
    st.tuples(st.just("takedown"), NUMBER),
)


class History:
    """A lake of a few sentences, and what may happen to it; each act is a commit."""

    def __init__(self, lake: Lake, repeats: bool = True) -> None:
        newest = [snapshot.largest(lake.unchecked, table).get("commit", 0) for table in TABLES]
        self.lake, self.commit = lake, max(map(int, newest))  # numbers never come again
        rules = tuple(check for check in plan().sentence_checks if repeats or check.name != "repeats")
        self.pages = 0
        self.plan = replace(plan(), sentence_checks=rules)
        fresh(lake, *TABLES)
        if lake.metadata.has(ASKED):
            lake.metadata.write(f"DELETE FROM {ASKED}")

    def partition(self, table: str, shard: str, rows: int, scorer: str = "") -> None:
        self.lake.execute(
            'INSERT INTO partitions ("table", partition_id, shard, scorer, rows, path, "commit") '
            f"VALUES ('{table}', '{table}{self.commit}{shard}', '{shard}', '{scorer}', {rows}, 'x', {self.commit})"
        )

    def ingest(self, numbers: list[int]) -> None:
        """A page in a shard of its own shows some sentences, new ones and old ones."""
        rows = [{"content": f"s{n}", "shard": f"h{self.commit}", "document_id": f"d{self.pages}"} for n in numbers]
        rows = [{**row, "commit": self.commit} for row in rows]
        insert(self.lake, "sentences", rows, columns(**TEXT, document_id=pa.string()))
        self.partition("sentences", f"h{self.commit}", len(rows))
        self.pages += 1

    def home(self, _: int) -> None:
        """Homes are given later than rows are committed: a kill may lie between."""
        self.lake.execute(
            "INSERT INTO sentence_content BY NAME SELECT content, content AS text, min(shard) AS shard, "
            f'{self.commit} AS "commit" FROM sentences ANTI JOIN sentence_content USING (content) GROUP BY content'
        )

    def score(self, scores: list[tuple[int, int]]) -> None:
        for n, words in dict(scores).items():
            for (shard,) in self.lake.query(f"SELECT shard FROM sentence_content WHERE content = 's{n}'"):
                if not self.lake.query(f"SELECT 1 FROM sentence_quality WHERE content = 's{n}'"):
                    row = {"content": f"s{n}", "shard": shard, "scorer": "s", "n_words": words, "commit": self.commit}
                    insert(self.lake, "sentence_quality", [row], columns(**SCORED, n_words=pa.int32()))
                    self.commit += 1
                    self.partition("sentence_quality", shard, 1, "s")

    def answer(self, most: int) -> None:
        """Workers answer the first ``most`` items of the list, then they are killed, or the list ends."""
        for items in pending_sentences(self.lake, self.plan, ("sentence_embedding",), Stage.CLIP):
            for item in items[:most]:
                rows = [{"content": key, "shard": item.shard, "scorer": "", "commit": self.commit} for key in item.keys]
                insert(self.lake, "sentence_embedding", rows, columns(**SCORED))
                self.partition("sentence_embedding", item.shard, len(rows))

    def retry(self, n: int) -> None:
        """Delete the row of one sentence; `partitions` counts it no longer, as in `quarantine.discount`."""
        found = self.lake.query(f"SELECT shard FROM sentence_embedding WHERE content = 's{n}'")
        self.lake.execute(f"DELETE FROM sentence_embedding WHERE content = 's{n}'")
        for (shard,) in found:
            self.partition("sentence_embedding", shard, -1)

    def gone(self, of: tuple[int, bool]) -> None:
        self.lake.execute("INSERT INTO superseded VALUES (?, ?, ?)", (f"d{of[0]}", of[1], self.commit))

    def takedown(self, n: int) -> None:
        """Remove a document's sentences; their contents stay while another shows them."""
        if not self.lake.query(f"SELECT 1 FROM sentences WHERE document_id = 'd{n}'"):
            return
        self.lake.execute(f"DELETE FROM sentences WHERE document_id = 'd{n}'")
        self.lake.execute(f"INSERT INTO takedowns (takedown_id, \"commit\") VALUES ('t', {self.commit})")

    def pending(self, worth: float) -> set[tuple[str, str]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asked_shards, "WORTH", worth)
            found: list[WorkItem] = list(
                chain.from_iterable(pending_sentences(self.lake, self.plan, ("sentence_embedding",), Stage.CLIP))
            )
        return {(item.shard, key) for item in found for key in item.keys}


BEGUN = [("ingest", [1, 1]), ("ingest", [1]), ("home", 0), ("score", [(1, 9)])]
FINISHED = [("gone", (0, True)), ("gone", (1, True)), ("answer", 9)]  # without a row, because nothing was eligible


@pytest.mark.slow
@given(acts=st.lists(ACTS, max_size=16), repeats=st.booleans())
@example(acts=[*BEGUN, *FINISHED, ("gone", (0, False))], repeats=False)
@example(acts=[*BEGUN, *FINISHED, ("ingest", [1])], repeats=False)
@example(acts=[*BEGUN, ("answer", 9), ("gone", (1, True))], repeats=True)
@example(acts=[*BEGUN, ("answer", 9), ("takedown", 1)], repeats=True)
@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_list_that_skips_recorded_shards_has_what_the_join_of_all_has(lake: Lake, acts: list, repeats: bool) -> None:
    history = History(lake, repeats)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asked_shards, "WORTH", 0)
        for act, value in acts:
            history.commit += 1
            getattr(history, act)(value)
            if act in ("answer", "home"):
                assert history.pending(0) == history.pending(float("inf")), (act, value)
        assert history.pending(0) == history.pending(float("inf"))


def test_a_finished_shard_is_not_joined_again_until_something_in_it_changes(lake: Lake, monkeypatch) -> None:
    monkeypatch.setattr(asked_shards, "WORTH", 0)
    history = History(lake)
    first = history.commit
    for act, value in (("ingest", [1, 2]), ("home", 0), ("ingest", [3, 4]), ("home", 0)):
        history.commit += 1
        getattr(history, act)(value)
    history.commit += 1
    history.score([(1, 9), (2, 1), (3, 9), (4, 1)])  # of each shard one sentence passes
    history.commit += 1
    history.answer(9)
    joined = []
    monkeypatch.setattr("pairmill.catalog.pending.worklist._pending_in", lambda *given: joined.append(given[-1]) or [])
    assert not history.pending(0) and not joined
    history.commit += 1
    history.retry(3)
    history.pending(0)
    assert joined == [[f"h{first + 3}"]]
