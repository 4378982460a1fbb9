"""The lake that the catalog is measured on holds what `30m` reads: waves end, and then nothing is pending."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.bench import catalog_30m, made_lake
from infra.bench.catalog_30m import linked, new_pages, rows_of, unmeasured, waves, work_lists
from infra.bench.made_lake import fill, plan_30m
from pairmill.catalog.cut import late_cut
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.worklist import pending_fusion, pending_images, pending_in_wave
from pairmill.catalog.terms.score import Stage

N = 2_000


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lake of two shards, the second without vectors."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (made_lake, catalog_30m):
            patched.setattr(module, "SHARD", N // 2)
        folder = tmp_path_factory.mktemp("made") / "lake"
        with create_or_open(folder) as lake:
            fill(lake, N)
        yield folder


@pytest.fixture(scope="module")
def finished(filled: Path) -> Iterator[tuple[Lake, int]]:
    """A copy of it in which waves have made all texts that matter, and how many waves that took."""
    with linked(filled) as copy, create_or_open(copy) as lake:
        plan = plan_30m()
        assert work_lists(lake, plan) == 0
        yield lake, waves(lake, 100, unmeasured)


def dropped(lake: Lake) -> dict[str, int]:
    return dict(lake.query("SELECT dropped_by, count(*) FROM cut_images GROUP BY ALL"))


@pytest.mark.slow
def test_each_rule_of_30m_drops_some_and_waves_end_when_every_text_that_matters_is_there(finished: tuple[Lake, int]):
    lake, took = finished
    plan = plan_30m()
    assert took >= 2 and late_cut.count_unknown(lake) == 0
    assert rows_of(pending_in_wave(lake, plan, "captions", plan.scorer("captions"))) == 0
    assert rows_of(pending_fusion(lake, plan)) == 0
    found = dropped(lake)
    rules = {"short_side", "exact_duplicate", "duplicate", "no_text", "pair_similarity", "whole_text", "balance"}
    assert rules <= found.keys() and found[""] > 100


@pytest.mark.slow
def test_new_pages_are_pending_until_they_are_scored(finished: tuple[Lake, int]):
    lake, _ = finished
    seen: dict[str, object] = {}

    def note(name: str, work: Callable[[], object]) -> None:
        seen[name] = work()

    new_pages(lake, N, note)
    sentences = "SELECT count(*) FROM sentence_content WHERE shard LIKE 'new%'"
    shaped = "least(width, height) >= 100 AND greatest(width, height) <= 3 * least(width, height)"
    pictures = f"SELECT count(*) FROM image_content WHERE shard LIKE 'new%' AND {shaped}"
    new = [lake.query(sql)[0][0] for sql in (pictures, sentences)]
    assert min(new) > 0 and seen["work lists of 1 % of new pages"] == sum(new)
    assert work_lists(lake, plan_30m()) == 0
    assert late_cut.count_unknown(lake) == 0 and sum(dropped(lake).values()) == N + N // 100


@pytest.mark.slow
def test_a_copy_leaves_the_filled_lake_as_it_was(filled: Path, finished: tuple[Lake, int]):
    with create_or_open(filled) as lake:
        assert lake.query("SELECT count(*) FROM images") == [(N,)] and not lake.query("SELECT 1 FROM captions")
        lacking = rows_of(pending_images(lake, plan_30m(), ("image_embedding",), Stage.CLIP))
        assert 0 < lacking < N // 2
