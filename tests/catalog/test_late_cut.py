"""Generation in waves against generation of everything, on random lakes, kills and stale rows included."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.cut import facts, late_cut
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.recipe.plan import Plan
from tests.catalog.test_facts import rotten
from tests.examples import examples
from tests.reference import cut as slow
from tests.worlds import random_lake as rules
from tests.worlds.generator import CHOICES, LATE, Generator, plan
from tests.worlds.shared import opened_new

ALL = 10**9
GENERATED = ("captions", "caption_similarity", "synthetic", "synthetic_similarity", "partitions")


def decided(lake: Lake) -> tuple[list, list]:
    texts = "SELECT image_id, place, content FROM cut_texts ORDER BY ALL"
    return lake.query("SELECT image_id, dropped_by, dropped_value FROM cut_images ORDER BY ALL"), lake.query(texts)


def generated(lake: Lake) -> int:
    return lake.query("SELECT count(DISTINCT sha256) FROM captions")[0][0]


def by_waves(lake: Lake, plan: Plan, generator: Generator, kill: float) -> int:
    """Go on until nothing that matters is unknown; a wave is killed with probability ``kill``."""
    for wave in range(1, 200 if kill else 20):
        cut(lake, plan)
        if not late_cut.count_unknown(lake):
            return wave - 1
        assert late_cut.select_wave(lake, plan, wave) > 0
        if generator.random.random() < kill:
            generator.work(
                generator.random.randint(0, len(generator.stages())), generator.random.choice((0.0, 0.3, 1.0))
            )
        else:
            generator.work()
    raise AssertionError("no end of waves")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake that holds one random world after the other."""
    with opened_new(tmp_path_factory.mktemp("several") / "lake") as lake:
        yield lake


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32),
    late=st.sets(st.sampled_from(sorted(LATE))),
    kill=st.sampled_from((0.0, 0.6)),
    cap=st.integers(1, 3),
    stale=st.booleans(),
    choice=st.sampled_from(CHOICES),
    is_kept=st.booleans(),
)
@examples(16)
def test_waves_give_what_generating_everything_gives(
    several: Lake,
    seed: int,
    late: set,
    kill: float,
    cap: int,
    stale: bool,
    choice: tuple[int, dict[str, str]],
    is_kept: bool,
):
    lake = several
    asked = {name: keep for name, keep in LATE.items() if name in late}
    images, words = rules.world(seed)
    # More pictures reach the cap: none is too small, and no two are near.
    images = [replace(image, width=100, height=100 + n, sharpness=50.0, group=image.sha256)
              for n, image in enumerate(images)]  # fmt: skip
    by_content = {image.sha256: image for image in images}
    images = [replace(by_content[image.sha256], image_id=image.image_id, position=image.position,
                      alt_text=image.alt_text) for image in images]  # fmt: skip
    made = plan(asked, *choice, cap=cap)
    rules.refill(lake, images, words, GENERATED)
    everything = Generator(lake, made, images, seed)
    cut(lake, made)
    late_cut.select_wave(lake, plan(asked, *choice, cap=ALL), 1)
    everything.work()
    cut(lake, made)
    of_everything, n_texts = decided(lake), generated(lake)
    rules.refill(lake, images, words, GENERATED)
    generator = Generator(lake, made, images, seed)
    if stale:
        generator.stale()
    other = replace(made, sentence_checks=made.sentence_checks[1:])  # by it, some images get other sentences
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(late_cut, "EXTENDED", 0 if is_kept else ALL)
        monkeypatch.setattr(late_cut, "TEXTS_AT_ONCE", 4 if is_kept else ALL)
        by_waves(lake, made, generator, kill)
        assert decided(lake) == of_everything
        cut(lake, other)
        of_other = decided(lake)
    cut(lake, other)
    assert decided(lake) == of_other
    cut(lake, made)
    assert stale or generated(lake) <= n_texts
    assert_captions(lake, made, generator)
    good = {name for name, (n, repeats) in words.items() if n >= 3 and repeats <= 2 and name != "s24"}
    known = [replace(image, late=everything.late(image.sha256, asked)) for image in images]
    dropped, _ = slow.cut(known, good, 64, 10.0, cap, rules.TOP_K, rules.MAX_USES, rules.SEED)
    assert {image_id: rule for image_id, rule, _ in of_everything[0]} == dropped


def assert_captions(lake: Lake, plan: Plan, generator: Generator) -> None:
    """Every kept picture has one caption, that of the captioner that is to be chosen, and how well that one fits."""
    of_kept = "SELECT DISTINCT sha256 FROM cut_images WHERE dropped_by = ''"
    captions, similarities = (current_scores(plan, table, "sha256") for table in ("captions", "caption_similarity"))
    found = lake.query(
        f"SELECT k.sha256, captioner, text, status, caption_similarity FROM ({of_kept}) k "
        f"LEFT JOIN {captions} c ON c.sha256 = k.sha256 LEFT JOIN {similarities} s ON s.sha256 = k.sha256 ORDER BY ALL"
    )
    by = [(sha, generator.chosen(sha)) for (sha,) in lake.query(f"{of_kept} ORDER BY ALL")]
    assert found == [
        (sha, f"c{place}", generator.text(place, sha), generator.status[place][sha], generator.fits[place][sha])
        for sha, place in by
    ]


@pytest.mark.slow
def test_kept_columns_of_texts_are_read_again_unless_their_file_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(late_cut, "EXTENDED", 0)
    with opened_new(tmp_path / "lake") as lake:
        images, words = rules.world(1)
        rules.refill(lake, images, words, GENERATED)
        made = plan(LATE, cap=1)
        assert by_waves(lake, made, Generator(lake, made, images, 1), 0) == 2
        expected, folder = decided(lake), Path(lake.uri) / ".facts"
        (kept,) = folder.glob("texts-*")
        cut(lake, made)
        assert decided(lake) == expected
        assert [*folder.glob("texts-*")] == [kept]  # the name has the time: what is written again has another one
        rotten(kept)
        cut(lake, made)
        assert decided(lake) == expected
        (again,) = folder.glob("texts-*")
        assert again != kept


@pytest.mark.slow
def test_a_picture_that_comes_back_has_the_texts_that_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(late_cut, "EXTENDED", 0)
    monkeypatch.setattr(facts, "EXTENDED", 0)
    with opened_new(tmp_path / "lake") as lake:
        images, words = rules.world(1)
        rules.refill(lake, images, words, GENERATED)
        made = plan(LATE)
        by_waves(lake, made, Generator(lake, made, images, 1), 0)
        expected = decided(lake)
        ((sha, *_),) = lake.query("SELECT sha256 FROM cut_images WHERE dropped_by = 'pair' ORDER BY ALL LIMIT 1")
        rows = lake.table('SELECT * REPLACE (1000 AS "commit") FROM images WHERE sha256 = ?', (sha,))
        lake.execute("DELETE FROM images WHERE sha256 = ?", (sha,))
        cut(lake, made)
        numbers = lake.query("SELECT id FROM facts.numbering")
        lake.insert("images", rows)
        cut(lake, made)
        assert lake.query("SELECT id FROM facts.numbering") == numbers
        assert decided(lake) == expected


def test_without_rules_on_texts_one_wave_makes_those_of_the_kept_alone(tmp_path: Path):
    images, words = rules.world(5)
    with opened_new(tmp_path / "lake") as lake:
        rules.fill(lake, images, words)
        made = plan({}, cap=1)
        assert by_waves(lake, made, Generator(lake, made, images, 5), 0) == 1
        assert generated(lake) == lake.query("SELECT count(*) FROM cut_kept")[0][0] > 0


@pytest.mark.parametrize(("wave", "times"), [(2, 1), (3, 2), (4, 4)])
def test_a_cluster_of_which_few_pass_is_asked_for_more(tmp_path: Path, wave: int, times: int):
    """Two clusters of 1,000 of which 50 each are known: each is then asked for about what its own share needs, and for
    twice that in each wave from the third on."""
    shares, cap = (0.2, 0.9), 50
    with opened_new(tmp_path / "lake") as lake:
        lake.execute(
            "CREATE TEMP TABLE cut_capped AS SELECT CAST(n AS UINTEGER) AS n, n // 1000 AS cluster, n % 1000 + 1 AS "
            f"place, CASE WHEN n % 1000 < {cap} THEN if((n % 10) / 10 < {list(shares)}[n // 1000 + 1], '', 'pair') END "
            f"AS state, n % 1000 >= {cap} + {cap} * (1 - {list(shares)}[n // 1000 + 1]) AS past FROM range(2000) t(n)"
        )
        sql = f"SELECT n // 1000, count(*) FROM ({late_cut.in_reach(lake, plan(LATE, cap=cap), wave)}) GROUP BY ALL"
        asked = dict(lake.query(sql))
    for cluster, share in enumerate(shares):
        lacking = times * cap * (1 - share) / share
        assert 0.6 * lacking <= asked[cluster] <= 1.1 * lacking + 1
