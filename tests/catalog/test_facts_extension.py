"""Facts that are extended by new rows decide as facts made from nothing, on random histories of a lake."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.cut import facts
from pairmill.catalog.cut.cut import select_survivors
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.plan import Plan
from tests.catalog.test_facts import decisions, rotten
from tests.examples import examples
from tests.worlds.random_lake import FILLED, plan
from tests.worlds.shared import opened_new

FULLY = {"name": "similar", "keep": "alt_similarity >= 0.2"}
PLANS = (plan(2), plan(2, 1, 100), plan(4, 3, 64, 10, 2), plan(4, 3, 64, 10, 1, FULLY))
# What may happen between two cuts, the usual things more often.
ACTS = ("pages", "pages", "pages", "scores", "scores_again", "candidates", "groups", "split", "gone", "merge", "again",
        "late", "newer_scorer", "trained", "killed", "takedown", "forget")  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with opened_new(tmp_path_factory.mktemp("extended") / "lake") as opened:
        yield opened


class History:
    """Acts on a lake, drawn by a seed; each writes under a commit number of its own.

    There are few different pictures and sentences, so that new pages often show known ones.
    """

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.random, self.commit, self.documents = lake, random.Random(seed), 0, 0
        self.plan = PLANS[seed % len(PLANS)].with_scorer("sentence_groups", "g")
        with lake.transaction():
            for table in (*FILLED, "documents", "image_similarity", "takedowns"):
                lake.execute(f"DELETE FROM {table}")
        for act in ("pages", "pages", "scores", "candidates", "groups"):
            self.act(act)

    def act(self, name: str) -> None:
        self.commit += 1
        with nullcontext() if name == "merge" else self.lake.transaction():
            getattr(self, name)()

    def insert(self, table: str, rows: list[dict]) -> None:
        if rows:
            self.lake.insert(table, pa.Table.from_pylist([{**row, "commit": self.commit} for row in rows]))

    def ids(self, table: str, key: str, but: str = "") -> list[str]:
        """The ids of a table, or those that another table lacks."""
        where = f"WHERE {key} NOT IN ({but})" if but else ""
        return [row[0] for row in self.lake.query(f"SELECT DISTINCT {key} FROM {table} {where} ORDER BY 1")]

    def pages(self, *, is_killed: bool = False) -> None:
        """Pages show pictures and sentences, new and old; new ones get a home. Their scores may come later."""
        draw, images, sentences, documents = self.random, [], [], []
        for _ in range(draw.randint(1, 4)):
            self.documents += 1
            of = {"document_id": f"d{self.documents}"}
            documents.append({**of, "uri": f"u{self.documents}", "source": "s"})
            for position in range(draw.randint(0, 3)):
                n = draw.randrange(25)
                size = random.Random(n)
                images.append({**of, "image_id": f"i{self.documents}-{position}", "sha256": f"p{n:02}",
                               "position": position, "alt_text": draw.choice("ab"), "url": draw.choice("xy"),
                               "width": size.choice((32, 100, 300)), "height": 100, "n_bytes": 10})  # fmt: skip
            for position in range(draw.randint(0, 5)):
                of_sentence = {"sentence_id": f"t{self.documents}-{position}", "content": f"s{draw.randrange(30):02}"}
                sentences.append({**of, **of_sentence})
        self.insert("documents", documents)
        self.insert("images", images)
        self.insert("sentences", sentences)
        if is_killed:
            return
        self.commit += 1
        new = self.ids("images", "sha256", "SELECT sha256 FROM image_content")
        self.insert("image_content", [{"sha256": key} for key in new])
        new = self.ids("sentences", "content", "SELECT content FROM sentence_content")
        self.insert("sentence_content", [{"content": key, "text": f"text {key}"} for key in new])

    def scores(self) -> None:
        """Contents that lack scores get them."""
        draw = self.random
        new = self.ids("image_content", "sha256", "SELECT sha256 FROM image_quality")
        self.quality(new)
        by = self.plan.scorer("balance_clusters")
        new = self.ids("image_content", "sha256", f"SELECT key FROM clusters WHERE scorer = '{by}'")
        self.clusters(new)
        new = self.ids("sentence_content", "content", "SELECT content FROM sentence_quality")
        words = [{"content": key, "scorer": "sq", "n_words": draw.choice((2, 5, 8))} for key in new]
        self.insert("sentence_quality", words)

    def clusters(self, keys: list[str]) -> None:
        by = self.plan.scorer("balance_clusters")
        rows = [{"kind": "image", "key": key, "scorer": by, "cluster": self.random.randrange(3)} for key in keys]
        self.insert("clusters", rows)

    def quality(self, keys: list[str]) -> None:
        self.insert("image_quality", [
            {"sha256": key, "scorer": self.plan.scorer("image_quality"), "sharpness": self.random.choice((5.0, 50.0)),
             "brightness": 0.5} for key in keys
        ])  # fmt: skip

    def scores_again(self) -> None:
        """A score of which the newest row counts: some pictures have another input now."""
        known = self.ids("image_content", "sha256")
        self.insert("image_similarity", [
            {"sha256": key, "scorer": "s", "alt_similarity": self.random.choice((0.1, 0.3))}
            for key in self.random.sample(known, len(known) // 2)
        ])  # fmt: skip

    def newer_scorer(self) -> None:
        """Score all pictures by a newer scorer, which the recipe reads from now on."""
        self.plan = self.plan.with_scorer("image_quality", f"q{self.commit}")
        self.quality(self.ids("image_content", "sha256"))

    def killed(self) -> None:
        """Kill a run between reading pages and assigning their contents a home shard; the next run assigns it."""
        self.pages(is_killed=True)

    def trained(self) -> None:
        """Train the clusters of the balance anew."""
        self.plan = self.plan.with_scorer("balance_clusters", f"c{self.commit}")
        self.clusters(self.ids("image_content", "sha256"))

    def late(self) -> None:
        """A writer that began before the last commit commits after it."""
        self.commit -= 1
        self.pages()
        self.commit += 1

    def candidates(self) -> None:
        """Pictures get candidates, old ones too; the same pair may come twice."""
        known = self.ids("sentence_content", "content")
        self.insert("match_candidates", [
            {"sha256": key, "scorer": "m", "content": content, "similarity": self.random.choice((0.1, 0.2, 0.3))}
            for key in self.ids("image_content", "sha256")
            for content in self.random.sample(known, min(len(known), self.random.choice((0, 1, 4))))
        ])  # fmt: skip

    def groups(self) -> None:
        """New complete groupings: a content stays with those with which it was, and groups may join."""
        for table, key, of in (("image_groups", "sha256", "image_content"),
                               ("sentence_groups", "content", "sentence_content")):  # fmt: skip
            found = dict(self.lake.query(f"SELECT {key}, arg_max(group_id, commit) FROM {table} GROUP BY 1"))
            keys = self.ids(of, key)
            for key_now in self.random.sample(keys, len(keys) // 4):
                found[key_now] = found.get(key_now) or self.random.choice(keys)
            join = dict(zip(found.values(), found.values(), strict=True))
            if len(join) > 1 and self.random.random() < 0.5:
                one, other = self.random.sample(sorted(join), 2)
                join[one] = other
            self.insert(table, [{key: each, "group_id": join[group], "scorer": "g"} for each, group in found.items()])

    def split(self) -> None:
        """Write a new grouping of sentences; in it one sentence stands alone that was in a group."""
        found = dict(self.lake.query("SELECT content, arg_max(group_id, commit) FROM sentence_groups GROUP BY 1"))
        if found:
            found[self.random.choice(sorted(found))] = "alone"
        self.insert(
            "sentence_groups", [{"content": each, "group_id": group, "scorer": "g"} for each, group in found.items()]
        )

    def gone(self) -> None:
        """Documents are gone, or back."""
        some = [self.random.choice(self.ids("documents", "document_id") or ["none"]) for _ in range(2)]
        self.insert(
            "superseded", [{"document_id": each, "gone": self.random.random() < 0.7} for each in sorted({*some})]
        )

    def merge(self) -> None:
        self.lake.execute("CALL ducklake_merge_adjacent_files('lake')")

    def again(self) -> None:
        """Nothing happens: the facts stay."""

    def takedown(self) -> None:
        """A document's rows are removed, and the contents that no other has."""
        gone = self.random.choice(self.ids("documents", "document_id") or ["none"])
        for table in ("documents", "images", "sentences"):
            self.lake.execute(f"DELETE FROM {table} WHERE document_id = '{gone}'")
        for content, table, key in (
            ("image_content", "images", "sha256"),
            ("sentence_content", "sentences", "content"),
        ):
            self.lake.execute(f"DELETE FROM {content} WHERE {key} NOT IN (SELECT {key} FROM {table})")
            self.lake.execute(f"DELETE FROM match_candidates WHERE {key} NOT IN (SELECT {key} FROM {content})")
        self.insert("takedowns", [{"takedown_id": f"{self.commit}", "reason": "asked", "report": "{}"}])

    def forget(self) -> None:
        """A scorer's rows are forgotten, and scored again as another commit."""
        self.lake.execute("DELETE FROM sentence_quality")
        self.commit += 1
        self.scores()


def differ(lake: Lake, made: Plan, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a cut from the facts as they are differs from one of facts made from nothing; the former facts stay."""
    extended = decisions(lake, made)
    lake.execute("DETACH facts")
    folder = Path(lake.uri) / ".facts"
    aside = folder.rename(folder.with_name("aside"))
    with monkeypatch.context() as patch:
        patch.setattr(facts, "EXTENDED", float("inf"))
        anew = decisions(lake, made)
    lake.execute("DETACH facts")
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    aside.rename(folder)
    return extended != anew


@given(seed=st.integers(0, 2**32), acts=st.lists(st.sampled_from(ACTS), min_size=2, max_size=5))
@pytest.mark.slow
@examples(100)
@pytest.mark.timeout(3600)  # each history takes 2 CPU s
def test_extended_facts_decide_as_facts_made_from_nothing(lake: Lake, seed: int, acts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(facts, "EXTENDED", 0)
        history = History(lake, seed)
        for act in ("again", *acts):
            history.act(act)
            facts.attach(lake, history.plan)
        assert not differ(lake, history.plan, monkeypatch)


@pytest.mark.slow
def test_rows_that_are_added_extend_them_and_rows_that_are_taken_make_them_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "EXTENDED", 0)
    found: list[bool] = []
    extend = facts.extend
    monkeypatch.setattr(facts, "extend", lambda *given: found.append(extend(*given)) or found[-1])
    history = History(lake, 1)
    facts.attach(lake, history.plan)
    history.act("pages")  # before they are seen, their rows and former ones are merged into one file
    acts = ("merge", "pages", "scores", "scores_again", "candidates", "groups", "gone", "merge", "pages")
    for act in (*acts, "late", "takedown", "forget"):
        history.act(act)
        facts.attach(lake, history.plan)
    assert found[-12:] == [True] * 9 + [False] * 3


@pytest.mark.slow
def test_recipes_that_take_turns_extend_each_its_own(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "EXTENDED", 0)
    found: list[bool] = []
    extend = facts.extend
    monkeypatch.setattr(facts, "extend", lambda *given: found.append(extend(*given)) or found[-1])
    made = History(lake, 1)
    of_seed = (made.plan.recipe.model_copy(update={"seed": seed}) for seed in (1, 2, 3))
    recipes = [replace(made.plan, recipe=recipe) for recipe in of_seed]
    for _ in range(3):
        found.clear()
        for each in recipes:
            select_survivors(lake, each)
        made.act("pages")
    assert found == [True] * 3
    kinds = Counter(path.name.startswith("early-") for path in (Path(lake.uri) / ".facts").iterdir())
    assert kinds == {True: 3, False: 3}


@pytest.mark.slow
def test_facts_that_another_reader_has_attached_stay_as_they_are(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "EXTENDED", 0)
    history = History(lake, 1)
    attached = "SELECT path FROM duckdb_databases() WHERE database_name = 'facts'"
    with create_or_open(lake.uri, read_only=True) as one, create_or_open(lake.uri, read_only=True) as other:
        facts.attach(one, history.plan)
        ((path,),) = one.query(attached)
        before = Path(path).read_bytes()
        history.act("pages")
        facts.attach(other, history.plan)
        assert other.query(attached) != [(path,)]
        assert Path(path).read_bytes() == before


@pytest.mark.slow
def test_former_facts_that_are_damaged_or_gone_meanwhile_are_made_from_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "EXTENDED", 0)
    history, take = History(lake, 5), facts.replace

    def gone(former: Path, making: Path) -> None:
        former.unlink()
        take(former, making)

    def damaged(former: Path, making: Path) -> None:
        take(former, making)
        rotten(making)

    for taken in (gone, damaged):
        facts.attach(lake, history.plan)
        history.act("pages")
        with monkeypatch.context() as patch:
            patch.setattr(facts, "replace", taken)
            facts.attach(lake, history.plan)
        assert not differ(lake, history.plan, monkeypatch)
