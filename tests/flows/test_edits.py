"""Edits of texts: the cut applies them, whatever shows a pair knows them, an undo or a takedown ends them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import Published, publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.compare.version_diff import differences
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.queries.figures.pair_sample import repeated_texts
from pairmill.catalog.recipe import recipe
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.upkeep.amended_versions import is_as_published
from pairmill.catalog.upkeep.taken_items import Subject
from pairmill.catalog.write import acts, lease
from pairmill.catalog.write.import_scores import import_scores
from pairmill.flows.api.opened_lake import OpenLake
from pairmill.flows.api.picture_acts import undo_act
from pairmill.flows.api.text_edits import TextEdit, edit_texts, preview_text_edit
from pairmill.flows.command.cli import main
from pairmill.tasks.release.export.export import export
from pairmill.tasks.upkeep.removal import take_down
from tests.flows.test_takedown import ROW_OF_D, found_in
from tests.worlds.published import SENTENCES, plan_of, published


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A lake whose dataset `small` has twelve pairs, each with all SENTENCES and the caption 'A coloured field.'."""
    published(tmp_path / "lake", cap=12, image_rules=())
    with create_or_open(tmp_path / "lake") as opened:
        yield opened


def plan(captioner: str = "") -> Plan:
    found = plan_of(12, (), True, True)[0]
    return found.with_scorer("captions", captioner) if captioner else found


def publish_again(lake: Lake, by: Plan) -> Published:
    with lease.writing(lake, "run-again", "test") as writer:
        cut(lake, by)
        return publish(lake, by, "run-again", 0.9, lambda: writer.begin("publish"))


def texts(lake: Lake, column: str = "caption") -> dict[str, str]:
    newest = "version = (SELECT max(version) FROM datasets)"
    return dict(lake.query(f"SELECT sha256, {column} FROM pairs WHERE {newest} ORDER BY sha256"))


def pictures(lake: Lake) -> list[str]:
    return list(texts(lake))


@pytest.mark.slow
def test_edits_stay_through_re_runs_and_a_new_captioner_and_go_by_undo(lake: Lake, tmp_path: Path):
    first, second, *others = pictures(lake)
    before = find(lake, "small@1")
    edit_texts(lake, "small", TextEdit(picture=first, text="A coloured fox."))
    edit_texts(lake, "small", TextEdit(find="coloured", replace="red"))
    edit_texts(lake, "small", TextEdit(picture=second, text="A coloured vixen."))
    edit_texts(lake, "small", TextEdit(regex=r"(\w+)\.$", replace=r"\1, \1!"))
    edit_texts(lake, "small", TextEdit("text2", prefix="TOK, "))
    published = publish_again(lake, plan())
    assert (published.version, published.is_new) == (2, True)
    # A rule changes the new texts that are older than itself.
    own = {first: "A red fox, fox!", second: "A coloured vixen, vixen!"}
    assert texts(lake) == own | dict.fromkeys(others, "A red field, field!")
    assert set(texts(lake, "text2").values()) == {f"TOK, {SENTENCES[1]}"}
    assert [publish_again(lake, plan()).is_new for _ in range(2)] == [False, False]

    # Another captioner: own texts stay, the rules change its texts too.
    row = {"captioner": "main", "prompt": "?", "status": "ok", "n_tokens": 4, "seconds": 0.5, "commit": 9}
    made = [{"sha256": sha, "shard": "shard-0", "scorer": "f" * 32, "text": "Some coloured plain.", **row}
            for sha in (first, second, *others)]  # fmt: skip
    lake.insert("captions", pa.Table.from_pylist(made))
    assert publish_again(lake, plan("f" * 32)).version == 3
    assert texts(lake) == own | dict.fromkeys(others, "Some red plain, plain!")

    edited = {(each.kind, each.cause, each.why, each.n) for each in differences(lake, before, find(lake, "small@2"), 0)}
    assert edited == {("changed", "text2 (edited), caption (edited)", "edit", 12)}
    export(lake, "small", 2, str(tmp_path / "out"), "texts")
    assert "People edited some of its texts" in (tmp_path / "out" / "README.md").read_text()
    told = json.loads((tmp_path / "out" / ".croissant.json").read_text())["rai:dataPreprocessingProtocol"]
    assert "edited caption: 12 pairs" in told and "edit of caption: replace 'coloured' by 'red'" in told

    opened = OpenLake(lake)
    assert opened.edit("small", "text1", prefix="Look: ", dry_run=True).changed == 12
    for act in reversed(opened.edits("small")):
        assert opened.undo_edit("small").act_id == act.act_id
    assert publish_again(lake, plan()).content_digest == before.content_digest
    with pytest.raises(PairmillError, match=r"'small' has no edit to undo; `pairmill edit small` lists"):
        undo_act(lake, "small", "")


@pytest.mark.slow
def test_why_tells_the_text_before_and_who_changed_it(lake: Lake, capsys: pytest.CaptureFixture[str]):
    first = pictures(lake)[0]
    edit_texts(lake, "small", TextEdit(picture=first, text="A vixen."))
    edit_texts(lake, "small", TextEdit("text1", prefix="Look: "))
    publish_again(lake, plan())
    uri = lake.uri
    assert main(["why", first, "--lake", uri]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "edited caption, before: A coloured field. edit 'A vixen.'" in told
    assert f"edited text1, before: {SENTENCES[0]} prefix 'Look: '" in told
    assert f"text1 {SENTENCES[0]}" in told  # the match is still known as that text


@pytest.mark.slow
def test_a_takedown_removes_edits_of_its_pictures_and_of_its_sentences(lake: Lake, tmp_path: Path):
    first, second, third, *_ = pictures(lake)
    lake.execute(ROW_OF_D)
    lake.execute("UPDATE sentences SET document_id = 'e' WHERE text <> ?", (SENTENCES[0],))
    edit_texts(lake, "small", TextEdit(picture=first, text="Seldom a vixen naps."))
    edit_texts(lake, "small", TextEdit("text1", picture=second, text="A fox, said to be red, has a nap."))
    edit_texts(lake, "small", TextEdit("text2", picture=third, text="A bridge."))
    publish_again(lake, plan())
    place = Path(lake.uri)
    assert found_in(place, [b"Seldom a vixen", b"said to be red"])
    take_down(lake, Subject(pictures=(first,), documents=("d",)), "test", tmp_path / "reports")
    assert found_in(place, [b"Seldom a vixen", b"said to be red", SENTENCES[0].encode()]) == set()
    found = texts(lake, "text1")
    assert len(found) == 11 and found.pop(third) == "A bridge." and set(found.values()) == {SENTENCES[1]}
    assert lake.query("SELECT field, before FROM edited_texts") == [("text1", SENTENCES[1])]
    assert [(each.field, each.value) for each in acts.acts_of(lake, "small")] == [("text2", "A bridge.")]
    assert is_as_published(lake, find(lake, "small@2"))


@pytest.mark.slow
def test_a_takedown_of_a_document_removes_the_caption_that_it_gave_to_a_picture_of_another(lake: Lake, tmp_path: Path):
    first, place = pictures(lake)[0], Path(lake.uri)
    lake.execute(
        "INSERT INTO documents BY NAME SELECT 'own' AS document_id, 'own.txt' AS uri, "
        '\'{"own_caption": "Alice Smith, Leeds"}\' AS metadata'
    )
    lake.execute(f"INSERT INTO images BY NAME SELECT * REPLACE ('zz' AS image_id) FROM images WHERE sha256 = '{first}'")
    lake.execute(f"UPDATE captions SET text = 'Alice Smith, Leeds' WHERE sha256 = '{first}'")
    publish_again(lake, plan())
    edit_texts(lake, "small", TextEdit(picture=first, text="Alice, in short."))
    publish_again(lake, plan())
    assert texts(lake)[first] == "Alice, in short." and found_in(place, [b"Alice"])
    lake.execute(
        f"UPDATE images SET document_id = 'own', alt_text = 'Alice on a pier' WHERE sha256 = '{first}' "
        "AND image_id NOT IN (SELECT image_id FROM pairs WHERE version = 3)"
    )
    take_down(lake, Subject(documents=("own",)), "test", tmp_path / "reports")
    assert found_in(place, [b"Alice"]) == set() and len(texts(lake)) == 12 and texts(lake)[first] is None
    assert lake.query("SELECT count(*) FROM acts") == lake.query("SELECT count(*) FROM edited_texts") == [(0,)]
    assert is_as_published(lake, find(lake, "small@2")) and is_as_published(lake, find(lake, "small@3"))


@pytest.mark.slow
def test_a_text_that_was_taken_away_gets_no_prefix(lake: Lake):
    first = pictures(lake)[0]
    edit_texts(lake, "small", TextEdit(picture=first, text=""))
    edit_texts(lake, "small", TextEdit(prefix="photo, "))
    publish_again(lake, plan())
    assert texts(lake).pop(first) is None and len(set(texts(lake).values())) == 2


@pytest.mark.parametrize(
    "form", ["csv", *(pytest.param(each, marks=pytest.mark.slow) for each in ("parquet", "jsonl"))]
)
def test_a_table_gives_each_picture_its_text_and_a_faulty_one_stores_nothing(lake: Lake, tmp_path: Path, form: str):
    file, shas = tmp_path / f"new.{form}", pictures(lake)
    writer = {"csv": "(HEADER)", "parquet": "(FORMAT parquet)", "jsonl": "(FORMAT json)"}[form]

    def write(rows: list[tuple[str, str]]) -> TextEdit:
        values = ", ".join(f"('{sha}', '{text}')" for sha, text in rows)
        lake.execute(f"COPY (SELECT * FROM (VALUES {values}) t(sha256, caption)) TO '{file}' {writer}")
        return TextEdit(table=str(file))

    for rows, fault in (
        ([(shas[0], "One."), ("0" * 32, "Two.")], "1 rows name no picture of the lake by sha256, one of them '0000"),
        ([(shas[0], "One."), (shas[0], "Two.")], f"the picture {shas[0]} has two texts in column 'caption', 'One.'"),
        ([(shas[0], "One."), (shas[1], "Two" * 40_000)], f"the text of {shas[1]} has more than 100,000 characters"),
        ([(shas[0], "A coloured field.")], "--table changes no caption of small@1"),
    ):
        with pytest.raises(PairmillError, match=fault):
            edit_texts(lake, "small", write(rows))
    assert not acts.acts_of(lake, "small")
    edit = write([(sha, f"Number {n}.") for n, sha in enumerate(shas)])
    assert preview_text_edit(lake, "small", edit)[1].changed == 12 and not acts.acts_of(lake, "small")
    edit_texts(lake, "small", edit)
    publish_again(lake, plan())
    assert texts(lake) == {sha: f"Number {n}." for n, sha in enumerate(shas)}
    assert {row for row in lake.query("SELECT count(*), min(before), max(who <> '') FROM acts")} == {
        (12, "A coloured field.", True)
    }


def test_a_damaged_file_of_a_user_is_named_and_the_lake_is_not(lake: Lake, tmp_path: Path):
    whole, file = tmp_path / "whole.parquet", tmp_path / "damaged.parquet"
    lake.execute(f"COPY (SELECT sha256, sha256 AS caption, 1.5 AS mark FROM images) TO '{whole}' (COMPRESSION zstd)")
    data = whole.read_bytes()
    for damaged in (data[:5], data[:4] + bytes(100) + data[104:]):
        file.write_bytes(damaged)
        with pytest.raises(PairmillError, match=f"'{file}' cannot be read, write it anew"):
            edit_texts(lake, "small", TextEdit(table=str(file)))
        with (
            pytest.raises(PairmillError, match=f"'{file}' cannot be read, write it anew"),
            lease.writing(lake, "run-import", "test") as writer,
        ):
            import_scores(writer, file, "mark", "sha256", "mark")


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (TextEdit(find="Coloured", replace="x"), "--find changes no caption of small@1: case and spaces count"),
        (TextEdit(find="", replace="x"), "an empty text stands everywhere"),
        (TextEdit(find="a"), "--find needs --replace TEXT"),
        (TextEdit(regex="(a", replace="x"), r"--regex '\(a': missing \): \(a. The syntax is RE2's"),
        (TextEdit(regex="(a)(b)?", replace=r"\3"), "no such group"),
        (TextEdit(regex="a", replace="x\\"), "no such group"),
        (TextEdit(regex="((a{1000}){1000}){9}", replace=""), "invalid repetition size"),
        (TextEdit(prefix="\ud800"), "is no UTF-8; shorten"),
        (TextEdit("captoin", prefix="a"), "no text of a pair; did you mean 'caption'"),
        (TextEdit(table="nowhere.csv"), "is no file of new texts; name a .parquet, .csv or .jsonl file"),
    ],
)
def test_a_faulty_edit_is_one_line_with_the_remedy(lake: Lake, edit: TextEdit, told: str):
    with pytest.raises(PairmillError, match=told) as refused:
        edit_texts(lake, "small", edit)
    assert "\n" not in str(refused.value) and not acts.acts_of(lake, "small")


@pytest.mark.slow
def test_a_rule_bounds_the_pictures_that_a_sentence_is_found_for(lake: Lake):
    few = pictures(lake)[:2]
    lake.execute(f"DELETE FROM match_candidates WHERE content IN (SELECT content FROM sentences WHERE text = ?) "
                 f"AND sha256 NOT IN ('{few[0]}', '{few[1]}')", (SENTENCES[0],))  # fmt: skip
    by = plan()
    content = by.recipe.model_dump(mode="json") | {"candidates": [{"name": "rare", "keep": "text_uses <= 2"}]}
    strict = compile_plan(recipe.validate(content, "small"), by.scorers)
    publish_again(lake, strict)
    assert texts(lake, "text1") == dict.fromkeys(few, SENTENCES[0]) and set(texts(lake, "text2").values()) == {None}


@pytest.mark.slow
def test_the_report_shows_texts_of_many_pictures_with_these(lake: Lake):
    edit_texts(lake, "small", TextEdit(picture=pictures(lake)[0], text="Its own."))
    publish_again(lake, plan())
    found = repeated_texts(lake, find(lake, "small@2"))
    assert {kind: [(row["text"], row["n"]) for row in rows] for kind, rows in found.items()} == {
        "sentence": [(text, 12) for text in sorted(SENTENCES)],
        "caption": [("A coloured field.", 11)],
        "alt text": [("a picture", 12)],
    }
    shown = found["caption"][0]["pictures"]
    assert len(shown) == 6 and all(each["shard"].startswith("shard-") for each in shown)
