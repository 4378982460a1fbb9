"""`pairmill concepts`: names counted, with the guilty rule, on planted vectors; clusters against the lake's tables."""

import json
from pathlib import Path

import numpy as np
import pytest

import pairmill as pm
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.gallery.gallery_query import Concept
from pairmill.ops.pair.tags import NamedPictures
from pairmill.ops.text.noun_phrases import NamedWords
from pairmill.tasks.release.gallery.concepts import concepts
from tests.worlds.commands import Tell
from tests.worlds.line import rows

NAMES = ["fox", "wine glass", "train"]
SHOWN = "('0x' || left(i.sha256, 6))::INTEGER % 3"  # the planted concept of a picture
STRICT = "best_similarity >= {}"
# Images that reach the cap, by the clusters of its scorer.
REACHED = """SELECT c.cluster, count(*), count(*) FILTER (dropped_by IN ('', 'balance', 'max_uses')),
    count(*) FILTER (dropped_by = '') FROM decisions d JOIN images i ON i.image_id = d.item_id
    JOIN clusters c ON c.key = i.sha256 WHERE d.dataset = 'demo' AND version = {}
    AND c.scorer = (SELECT digest FROM scorers WHERE name = 'balance_clusters') GROUP BY ALL"""


def planted(lake: Path) -> None:
    """Give every picture the vector of its concept, a little turned."""
    with create_or_open(lake) as opened:
        length = opened.query("SELECT any_value(octet_length(image_vector)) // 2 FROM image_embedding")[0][0]
        for concept in range(len(NAMES)):
            vector = np.zeros(length, "<f2")
            vector[[concept, -1]] = 0.9, 0.1
            of = f"('0x' || left(sha256, 6))::INTEGER % 3 = {concept} AND image_vector IS NOT NULL"
            opened.execute(f"UPDATE image_embedding SET image_vector = from_hex('{vector.tobytes().hex()}') WHERE {of}")


def embed(texts: list[str]) -> np.ndarray:
    """Embed "a photo of a NAME" as an axis of its own, any other text as 0."""
    found = np.zeros((len(texts), 64), np.float32)
    for row, text in enumerate(texts):
        if (name := text.removeprefix("a photo of a ")) in NAMES:
            found[row, NAMES.index(name)] = 1
    return found


@pytest.mark.slow
def test_counts_and_the_guilty_rule_are_those_of_the_decisions(curated_copy: Path):
    middle = rows(curated_copy, "SELECT median(best_similarity) FROM pairs WHERE version = 1")[0][0]
    with pm.open(curated_copy) as lake:
        lake.recut("demo@1", {"images.pair_similarity.keep": STRICT.format(middle)})
    planted(curated_copy)
    truth = f"""SELECT {SHOWN} AS concept, dropped_by, count(*) AS n, count(*) FILTER (bit_count(failed) = 1) AS alone,
        list(value) FILTER (bit_count(failed) = 1) AS given FROM decisions d JOIN images i ON i.image_id = d.item_id
        WHERE d.version = 2 AND d.kind = 'image' AND sha256 IN (SELECT sha256 FROM image_embedding
        WHERE image_vector IS NOT NULL) GROUP BY ALL"""
    found = rows(curated_copy, truth)
    with create_or_open(curated_copy, read_only=True) as lake:
        length = rows(curated_copy, "SELECT any_value(octet_length(image_vector)) // 2 FROM image_embedding")[0][0]
        told = concepts(lake, datasets.find(lake, "demo@2"), NAMES, lambda texts: embed(texts)[:, :length])
    assert sum(each.pictures for each in told) > 20
    for concept, each in enumerate(told):
        fates = {rule: (n, alone, given) for at, rule, n, alone, given in found if at == concept}
        assert each.pictures == fates.pop("", (0,))[0] and each.dropped == sum(n for n, *_ in fates.values())
        n, alone, given = fates[each.rule]
        assert (each.dropped_by_rule, each.alone) == (n, alone) and n == max(n for n, *_ in fates.values())
        if each.rule == "pair_similarity":
            values = sorted(float(value.removeprefix("best_similarity=")) for value in given)
            assert each.looser in values and each.looser < middle
            assert each.back == sum(value >= each.looser for value in values) >= alone / 2
    assert "pair_similarity" in {each.rule for each in told}


def test_a_name_is_found_as_a_plural_but_not_inside_another():
    find = NamedWords(["fox", "wine glass", "glass", "woman", "Berry"])
    assert find("Two FOXES and three wine glasses.") == {0, 1}
    assert find("A glass; women with berries") == {2, 3, 4}
    assert find("foxglove, glassy wine") == set()


def test_the_command_prints_a_row_a_name(curated: Path, tell: Tell, tmp_path: Path):
    (tmp_path / "names.txt").write_text("overheated face\n\nsushi\noverheated face\n")
    asked = ("concepts", "demo@1", "--names", str(tmp_path / "names.txt"), "--lake", str(curated))
    told = json.loads(tell(*asked, "--format", "json"))
    assert [row["name"] for row in told] == ["overheated face", "sushi"] and sum(row["pictures"] for row in told) > 0
    texts = "lower(concat_ws(' ', text1, text2, text3))"
    sql = f"SELECT count(*) FROM pairs WHERE version = 1 AND regexp_matches({texts}, '\\boverheated faces?\\b')"
    assert told[0]["texts"] == rows(curated, sql)[0][0]
    table = tell(*asked)
    assert "NULL" not in table and "half of them come back if the rule's threshold is `looser`" in table


@pytest.mark.slow
def test_a_name_that_no_picture_shows_is_counted_for_next_to_none_beside_names_that_are_there_or_alone(curated: Path):
    n = rows(curated, "SELECT count(*) FROM image_embedding WHERE image_vector IS NOT NULL")[0][0]
    with pm.open(curated) as lake:
        for names in (["unicorn on mars"], ["unicorn on mars", "submarine", "sushi", "overheated face"]):
            absent = [each for each in lake.concepts("demo", names) if each.name in ("unicorn on mars", "submarine")]
            assert sum(each.pictures + each.dropped for each in absent) <= n / 100
        assert all(0 < each.sure <= 1 for each in lake.concepts("demo", ["sushi", "overheated face"]) if each.sure)


def test_words_that_mean_the_same_are_no_rivals_of_a_name_and_others_are():
    axes = {"dog": (1, 0, 0), "poodle": (0.97, 0.24, 0), "cat": (0, 1, 0), "car": (0, 0, 1), "bus": (0, 0.3, 0.95)}

    def embed(texts: list[str]) -> np.ndarray:
        found = np.array([axes[text.removeprefix("a photo of a ")] for text in texts], np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    poodle, dog, cat = embed([f"a photo of a {name}" for name in ("poodle", "dog", "cat")])
    find = NamedPictures(["dog"], ["Dog", "poodle", "cat", "car", "bus"], embed, np.empty((0, 3), np.float32))
    shown, probability = find(np.stack([poodle, dog, cat]))
    assert shown.tolist() == [0, 0, -1] and (probability[:2] > 0.99).all()


@pytest.mark.slow
def test_an_export_lists_its_gaps_by_concept_the_largest_loss_first(curated_copy: Path, tell: Tell, tmp_path: Path):
    names, lake = tmp_path / "names.txt", ("--lake", str(curated_copy))
    names.write_text("peacock\ncrab\ncat\n")
    counted = json.loads(tell("concepts", "demo@1", "--names", str(names), "--format", "json", *lake))
    to = ("--to", str(tmp_path / "out"), "--format", "texts", "--concepts", str(names))
    tell("export", "demo@1", *to, *lake)
    gaps = json.loads((tmp_path / "out" / ".croissant.json").read_text())["rai:dataBiases"]
    lost = {row["name"]: row["dropped"] / max(1, row["pictures"] + row["dropped"]) for row in counted}
    assert [line.partition(":")[0] for line in gaps] == sorted(lost, key=lambda name: (-lost[name], name))
    for row in counted:
        assert any(line.startswith(f"{row['name']}: {row['pictures']} pictures kept, {row['dropped']} dropped")
                   for line in gaps)  # fmt: skip


@pytest.mark.slow
def test_sizes_are_those_of_the_decisions_before_and_after_the_cap(curated_copy: Path, tell: Tell):
    with pm.open(curated_copy) as lake:
        lake.recut("demo@1", {"balance.cap": 2})
        found = lake.concepts("demo@2")
    truth = {row[0]: row[1:] for row in rows(curated_copy, REACHED.format(2))}
    assert {each.cluster: (each.pictures + each.dropped, each.before, each.pictures) for each in found} == truth
    assert any(each.pictures < each.before for each in found) and max(each.pictures for each in found) <= 2
    assert [each.before for each in found] == sorted((each.before for each in found), reverse=True)
    assert any(each.rule == "balance" and 0 < each.dropped_by_rule <= each.dropped for each in found)
    names = {each.cluster: each.name for each in found}
    texts = dict(rows(curated_copy, "SELECT image_id, concat_ws(' ', text1, array_to_string(tags, ' ')) FROM pairs "
                                    "WHERE version = 2"))  # fmt: skip
    assert all(each.example in texts for each in found if each.pictures) and any(names.values())
    place = ("concepts", "demo@2", "--lake", str(curated_copy))
    told = json.loads(tell(*place, "--format", "json", "--most", "1"))
    assert [Concept(**row) for row in told] == found[:1]
    assert str(found[0].before) in tell(*place)
