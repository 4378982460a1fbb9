"""Lists that compare only the pictures of new rows have what a comparison of all pictures has, on random histories."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.metadata import ASKED
from pairmill.catalog.pending import asked_shards, changed_inputs, worklist
from pairmill.catalog.pending.changed_inputs import pending_own_captions, pending_rights, pending_similarity
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.scores import IMAGE_SIMILARITY, RIGHTS
from tests.catalog.test_worklist import fresh, plan
from tests.examples import examples

TABLES = ("documents", "images", "image_content", "image_embedding", "image_quality", "match_candidates",
          "file_claims", "superseded", "takedowns", "image_similarity", "rights", "captions")  # fmt: skip
PLAN = replace(plan(), scores=(*plan().scores, IMAGE_SIMILARITY, RIGHTS))
NUMBER = st.integers(0, 4)
ACTS = st.one_of(
    st.tuples(st.just("page"), st.tuples(NUMBER, st.sampled_from(["", "a", "b"]))),
    st.tuples(st.just("home"), st.just(0)),
    st.tuples(st.just("embed"), NUMBER),
    st.tuples(st.just("candidate"), st.tuples(NUMBER, st.sampled_from([0.1, 0.9]))),
    st.tuples(st.just("answer"), st.integers(0, 9)),
    st.tuples(st.just("retry"), NUMBER),
    st.tuples(st.just("gone"), st.tuples(NUMBER, st.booleans())),
    st.tuples(st.just("takedown"), NUMBER),
)
# A list, the table that it fills, and the column for what a worker answers.
LISTS: dict[str, tuple[Callable[[Lake], Iterator[list[WorkItem]]], str, str]] = {
    "similarity": (lambda lake: pending_similarity(lake, PLAN), "image_similarity", "input_digests"),
    "rights": (lambda lake: pending_rights(lake, PLAN), "rights", "input_digests"),
    "own captions": (lambda lake: pending_own_captions(lake, "own"), "captions", "texts"),
}


class History:
    """A lake of a few pictures, and what may happen to it; each act is a commit."""

    def __init__(self, lake: Lake, of: str) -> None:
        newest = [snapshot.largest(lake.unchecked, table).get("commit", 0) for table in TABLES]
        self.lake, self.commit = lake, max(map(int, newest))  # numbers never come again
        self.list, self.filled, self.answered = LISTS[of]
        self.pages = 0
        fresh(lake, *TABLES)
        if lake.metadata.has(ASKED):
            lake.metadata.write(f"DELETE FROM {ASKED}")

    def insert(self, table: str, **row: object) -> None:
        self.lake.insert(table, pa.Table.from_pylist([{**row, "commit": self.commit}]))

    def page(self, of: tuple[int, str]) -> None:
        """Add a document with one picture: its alt text, a licence, and a caption that came along with it."""
        n, alt = of
        said = f'{{"license": "{alt}", "own_caption": "{alt}"}}' if alt else ""
        self.insert("documents", document_id=f"d{self.pages}", metadata=said)
        self.insert("images", image_id=f"i{self.pages}", document_id=f"d{self.pages}", sha256=f"p{n}", alt_text=alt,
                    width=200, height=200, shard=f"h{self.commit}")  # fmt: skip
        self.pages += 1

    def home(self, _: int) -> None:
        """Give each new picture a home shard, in a later commit than its rows: a kill may lie between."""
        self.lake.execute(
            "INSERT INTO image_content BY NAME SELECT sha256, min(shard) AS shard, "
            f'{self.commit} AS "commit" FROM images ANTI JOIN image_content USING (sha256) GROUP BY sha256'
        )

    def embed(self, n: int) -> None:
        for (shard,) in self.lake.query(f"SELECT shard FROM image_content WHERE sha256 = 'p{n}'"):
            if not self.lake.query(f"SELECT 1 FROM image_embedding WHERE sha256 = 'p{n}'"):
                self.insert("image_embedding", sha256=f"p{n}", shard=shard, scorer="e", image_vector=b"v")
                self.insert("image_quality", sha256=f"p{n}", shard=shard, scorer="q", sharpness=50.0, brightness=50.0)
                self.insert("file_claims", sha256=f"p{n}", shard=shard, scorer="", file_licence="", exif_rights="",
                            file_creator="")  # fmt: skip

    def candidate(self, of: tuple[int, float]) -> None:
        self.insert("match_candidates", sha256=f"p{of[0]}", content="s", similarity=of[1], shard="r", scorer="")

    def answer(self, most: int) -> None:
        """Write answers for the first ``most`` keys of each round, as workers do that are killed afterwards."""
        for items in self.list(self.lake):
            keys = [(item, n) for item in items for n in range(len(item.keys))]
            for item, n in keys[:most]:
                scorer = {"image_similarity": "i", "captions": "own"}.get(self.filled, "")
                column = "text" if self.answered == "texts" else "input_digest"
                value = item.inputs[self.answered][n]
                self.insert(self.filled, sha256=item.keys[n], shard=item.shard, scorer=scorer, **{column: value})

    def retry(self, n: int) -> None:
        self.lake.execute(f"DELETE FROM {self.filled} WHERE sha256 = 'p{n}'")

    def gone(self, of: tuple[int, bool]) -> None:
        self.insert("superseded", document_id=f"d{of[0]}", gone=of[1])

    def takedown(self, n: int) -> None:
        """Set the texts of a document to '', in the same rows, as a removal does if its picture stays."""
        self.lake.execute(f"UPDATE images SET alt_text = '' WHERE document_id = 'd{n}'")
        self.lake.execute(f"UPDATE documents SET metadata = '' WHERE document_id = 'd{n}'")
        self.insert("takedowns", takedown_id="t")

    def pending(self, worth: float) -> set[tuple[str, str]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asked_shards, "WORTH", worth)
            found = [item for item in chain.from_iterable(self.list(self.lake))]
        keys = {(item.shard, key) for item in found for key in item.keys}
        assert len(keys) == sum(len(item.keys) for item in found)
        return keys


BEGUN = [("page", (0, "a")), ("page", (1, "b")), ("home", 0), ("embed", 0), ("embed", 1), ("answer", 9)]


@pytest.mark.slow
@pytest.mark.parametrize("of", LISTS)
@given(acts=st.lists(ACTS, max_size=14))
@example(acts=[*BEGUN, ("page", (0, "b")), ("answer", 0), ("page", (1, "a"))])
@example(acts=[("page", (0, "a")), ("answer", 9), ("home", 0), ("answer", 9)])
@example(acts=[*BEGUN, ("page", (0, "b")), ("answer", 9), ("gone", (0, True)), ("answer", 9)])
@example(acts=[*BEGUN, ("candidate", (0, 0.9)), ("answer", 9), ("retry", 0)])
@example(acts=[*BEGUN, ("gone", (0, True)), ("answer", 9), ("gone", (0, False))])
@example(acts=[*BEGUN, ("takedown", 0), ("answer", 9), ("page", (0, "a"))])
@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_list_of_the_pictures_of_new_rows_has_what_a_comparison_of_all_has(lake: Lake, of: str, acts: list) -> None:
    history = History(lake, of)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asked_shards, "WORTH", 0)
        patch.setattr(worklist, "ROUND", 2 * changed_inputs.HELD)
        for act, value in acts:
            history.commit += 1
            getattr(history, act)(value)
            if act in ("answer", "home"):
                assert history.pending(0) == history.pending(float("inf")), (act, value)
        assert history.pending(0) == history.pending(float("inf"))


def test_pictures_without_new_rows_are_compared_no_more(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_shards, "WORTH", 0)
    history = History(lake, "similarity")
    compared: list[int] = []
    plain = changed_inputs.items_by_shard

    def counted(lake: Lake, *given: object) -> Iterator[list[WorkItem]]:
        compared.append(lake.query("SELECT count(*) FROM changed_pictures")[0][0])
        yield from plain(lake, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(changed_inputs, "items_by_shard", counted)
    for act, value in (*BEGUN, ("answer", 9), ("candidate", (1, 0.9)), ("answer", 9), ("answer", 9)):
        history.commit += 1
        getattr(history, act)(value)
    assert compared == [2, 1]
