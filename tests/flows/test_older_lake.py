"""A lake that an earlier commit made opens with nothing pending, and what it published is published still.

`tests/worlds/lakes/of_3e480e0.tar.xz` is what commit 3e480e0 made of eight documents of the demo world (seed 7) by
``pairmill run demo``. A change that makes any of it pending is an exception, with its cost, that its commit explains.

The exception so far: version 2 of the sentence structure counts every verb as an action, as the texts that RealSyn
prints require. Sentences are parsed again, some 200 a second on a core; `pairmill status RECIPE` shows how many. Beside
it nothing is pending: the other tests give that op its former version.
"""

import tarfile
from pathlib import Path

import pytest

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write import lease
from pairmill.catalog.write.dropped_versions import drop_version
from pairmill.flows.run.settings import load_recipe
from pairmill.flows.run.survey import survey
from pairmill.ops.text.sentence_structure import SentenceStructure
from pairmill.tasks.run.place import identity
from tests.worlds import lakes

PUBLISHED = ("demo", 1, "861e75143de5b90de022a01d141b3978")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    with tarfile.open(Path(lakes.__path__[0]) / "of_3e480e0.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path / "lake"


@pytest.fixture
def parsed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the sentence structures of the lake for current ones."""
    monkeypatch.setattr(SentenceStructure.__init__, "__defaults__", (SentenceStructure("").batch_size, 1))


def test_sentences_alone_are_parsed_again_and_that_is_told_before(lake: Path) -> None:
    plan, _ = identity.with_scorers(compile_plan(load_recipe("demo")))
    with create_or_open(lake, read_only=True) as opened:
        pending = [each for each in survey(opened, plan, ()).found if each.rows]
        sentences = opened.query("SELECT count(*) FROM sentence_structure")
    assert [(each.step, each.rows) for each in pending] == [("score_sentences", *sentences[0])]


@pytest.mark.usefixtures("parsed_before")
@pytest.mark.parametrize("read_only", [True, False])
def test_nothing_is_pending_in_an_older_lake(lake: Path, read_only: bool) -> None:
    plan, _ = identity.with_scorers(compile_plan(load_recipe("demo")))
    with create_or_open(lake, read_only) as opened:
        found = survey(opened, plan, ()).found
        assert len(found) > 10 and [each for each in found if each.rows] == []
        assert opened.query("SELECT name, version, content_digest FROM datasets") == [PUBLISHED]
        with pytest.raises(PairmillError, match="has no version 2; its newest is demo@1"):
            find(opened, "demo@2")


@pytest.mark.usefixtures("parsed_before")
def test_an_older_lake_is_cut_to_the_dataset_that_it_has(lake: Path) -> None:
    plan, _ = identity.with_scorers(compile_plan(load_recipe("demo")))
    with create_or_open(lake) as opened, lease.writing(opened, "run", "test") as writer:
        seen = survey(opened, plan, ())  # which finds the scorers of what was trained
        cut(opened, seen.plan)
        found = publish(opened, seen.plan, "run", 1.0, lambda: writer.begin("publish"))
        assert (found.name, found.version, found.content_digest, found.is_new) == (*PUBLISHED, False)
        drop_version(opened, "demo", 1)
        again = publish(opened, seen.plan, "run", 1.0, lambda: writer.begin("publish"))
        assert (again.version, again.content_digest, again.is_new) == (2, PUBLISHED[2], True)
