"""Whose text is a picture's caption: in SQL as in its slow twin; what a mixture draws, and by what it does not."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.chosen_captions import asked_share, wave_of_captioner
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.recipe.plan import Plan
from tests.worlds.generator import digest, drawn, plan
from tests.worlds.shared import opened_new

N = 4000


@pytest.fixture
def lake(tmp_path: Path):
    """A lake that is asked about N pictures."""
    with opened_new(tmp_path / "lake") as opened:
        opened.execute(f"CREATE TEMP TABLE wave_asked AS SELECT n, md5('' || n) AS sha256 FROM range({N}) t(n)")
        yield opened


def asked(lake: Lake, plan: Plan) -> dict[str, int]:
    """The place of the captioner that is asked, by picture; of every picture one is."""
    found = {
        sha: place
        for place in range(len(plan.recipe.captioners))
        for (sha,) in lake.query(f"SELECT sha256 FROM {wave_of_captioner(plan, place)}")
    }
    assert sum(lake.query(f"SELECT count(*) FROM {wave_of_captioner(plan, place)}")[0][0]
               for place in range(len(plan.recipe.captioners))) == len(found) == N  # fmt: skip
    return found


def mixture(n: int) -> Plan:
    return plan({}, n, {"choose": "mixture"}, cap=3)


def scorer(made: Plan, table: str, place: int) -> str:
    return made.scorer(made.of_captioner(table, place))


def insert(lake: Lake, table: str, rows: list[tuple], *columns: str) -> None:
    """Insert rows (sha256, scorer, …); each has a commit of its own, and all are of one shard with two partitions."""
    values = dict(zip(("sha256", "scorer", *columns), zip(*rows, strict=True), strict=True))
    commits = pa.array(range(len(rows)), pa.int64())
    lake.insert(
        table, pa.table({**{k: list(v) for k, v in values.items()}, "shard": ["s"] * len(rows), "commit": commits})
    )
    for scorer in sorted({row[1] for row in rows}):
        for part in ("a", "b"):
            values = (table, f"{table} {scorer} {part}", "s", scorer, len(rows))
            lake.execute(
                'INSERT INTO partitions ("table", partition_id, shard, scorer, rows) VALUES (?, ?, ?, ?, ?)', values
            )


@pytest.mark.parametrize("choose", ["first", "best", "mixture"])
@pytest.mark.parametrize("n_captioners", [2, 3])
def test_the_chosen_rows_are_those_of_the_slow_twin(tmp_path: Path, choose: str, n_captioners: int):
    """Of 400 pictures some rows are missing; similarities are few values or NULL, and some are of an older text."""
    made = plan({}, n_captioners, {"choose": choose}, cap=3)
    some = random.Random(f"{choose} {n_captioners}")
    said, fits, old = {}, {}, []
    for n in range(400):
        for place in range(n_captioners):
            key = f"p{n:03}", place
            if some.random() < 0.9:
                said[key] = some.choice((("ok", f"text {place} {n}"), ("ok", f"text {n}"), ("cut_off", f"te {n}")))
                if some.random() < 0.2:
                    old.append((key[0], scorer(made, "caption_similarity", place), digest("old"), 0.99))
                if some.random() < 0.9 and place in made.compared_captioners:
                    fits[key] = some.choice((None, 0.2, 0.4, 0.4))
    expected = {}
    for sha in (f"p{n:03}" for n in range(400)):
        places = range(n_captioners)
        if choose == "best":
            if not all((sha, place) in said and (sha, place) in fits for place in places):
                continue
            good = [place for place in places if said[sha, place][0] == "ok"]
            by = min(good, key=lambda p: (-(-2 if fits[sha, p] is None else fits[sha, p]), p), default=0)
        else:
            by = (
                0 if choose == "first" else drawn(sha, made.recipe.seed, [each.name for each in made.recipe.captioners])
            )
        if (sha, by) in said:
            expected[sha] = (f"c{by}", *said[sha, by], fits.get((sha, by)))
    with opened_new(tmp_path / "lake") as lake:
        captions = [(sha, scorer(made, "captions", place), *row) for (sha, place), row in said.items()]
        insert(lake, "captions", captions, "status", "text")
        current = [(sha, scorer(made, "caption_similarity", place), digest(said[sha, place][1]), value)
                   for (sha, place), value in fits.items()]  # fmt: skip
        insert(lake, "caption_similarity", old + current, "input_digest", "caption_similarity")
        captions, similarities = (current_scores(made, table, "sha256") for table in ("captions", "caption_similarity"))
        found = lake.query(
            f"SELECT c.sha256, captioner, status, text, caption_similarity FROM {captions} c "
            f"LEFT JOIN {similarities} s ON s.sha256 = c.sha256 AND s.input_digest = left(sha256(text), 32)"
        )
    assert len(found) == len(expected) and {row[0]: row[1:] for row in found} == expected
    assert choose == "first" or len({row[1] for row in found}) == n_captioners


@pytest.mark.parametrize("n", [2, 3])
def test_every_captioner_of_a_mixture_describes_as_many(lake: Lake, n: int):
    made = mixture(n)
    found = asked(lake, made)
    assert all(place == drawn(sha, made.recipe.seed, [f"c{at}" for at in range(n)]) for sha, place in found.items())
    share = asked_share(made)
    assert share == 1 / n
    for place in range(n):
        assert [*found.values()].count(place) == pytest.approx(N * share, abs=4 * (N * share * (1 - share)) ** 0.5)


def test_a_captioner_that_is_added_moves_the_pictures_that_it_gets_and_no_other(lake: Lake):
    before, after = asked(lake, mixture(2)), asked(lake, mixture(3))
    assert all(after[sha] in (place, 2) for sha, place in before.items())


def test_what_the_cap_draws_first_is_of_all_captioners(lake: Lake):
    """By the cap's own hash every kept picture would be the same captioner's."""
    made = mixture(2)
    order = lake.query(f"SELECT sha256 FROM wave_asked ORDER BY sha256(sha256 || '{made.recipe.seed}') LIMIT {N // 20}")
    found = asked(lake, made)
    first = [found[sha] for (sha,) in order]
    assert first.count(0) == pytest.approx(len(first) / 2, abs=4 * (len(first) / 4) ** 0.5)
