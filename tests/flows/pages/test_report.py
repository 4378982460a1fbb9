"""The report: whole in one file, true to the lake, and deaf to whatever the web wrote into the texts."""

import base64
import hashlib
import io
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from lxml import html
from PIL import Image

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.recipe.recipe import validate
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.demo_weights import DEMO_WEIGHTS
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.write import runs
from pairmill.flows.command.cli import main
from pairmill.flows.command.pairmill_run import print_outcome
from pairmill.flows.command.terminal import console
from pairmill.flows.pages.html_report import is_report_of, write_report
from pairmill.flows.run.outcome import ensure_report, outcome_in
from pairmill.tasks.release.gallery import thumbnails
from pairmill.tasks.release.gallery.thumbnails import MOST_BYTES, SIDE, thumbnail
from tests.worlds.published import picture, published

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>\u202e & so on'

ODD = ({"name": "text", "keep": "alt_text like '%x%' or width > 5 and not (height < 3)"},)


def page(folder: Path, **changes) -> html.HtmlElement:
    published(folder / "lake", **changes)
    return reported(folder)


def reported(folder: Path) -> html.HtmlElement:
    with create_or_open(folder / "lake", read_only=True) as lake:
        path = write_report(lake, "small", 1, str(folder / "deep" / "report.html"))
    return html.fromstring(Path(path).read_bytes())


def text(element: html.HtmlElement) -> str:
    return " ".join(element.text_content().split())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, html.HtmlElement]:
    folder = tmp_path_factory.mktemp("small")
    return folder, page(folder, pictures=30, cap=3, clusters=3)


@pytest.mark.slow
def test_pictures_of_an_earlier_report_are_taken_from_the_cache(
    small: tuple[Path, html.HtmlElement], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(thumbnails, "payloads", lambda *_, **__: pytest.fail("a shard was read again"))
    again = reported(small[0])
    assert [each.get("src") for each in again.iter("img")] == [each.get("src") for each in small[1].iter("img")] != []


@pytest.mark.slow
def test_it_names_what_is_needed_to_make_the_dataset_again(small: tuple[Path, html.HtmlElement]):
    folder, found = small
    with create_or_open(folder / "lake", read_only=True) as lake:
        digest, recipe_digest = lake.query("SELECT content_digest, recipe_digest FROM datasets")[0]
        scorers = lake.query("SELECT name, digest, model FROM scorers")
    said = text(found.get_element_by_id("reproduce"))
    assert found.findtext(".//title") == "small@1"
    assert digest in said and recipe_digest in said
    assert scorers and all(name in said and scorer in said and model in said for name, scorer, model in scorers)
    assert "open_clip:tiny/none" in said


def test_the_recipe_in_it_is_the_recipe(small: tuple[Path, html.HtmlElement]):
    folder, found = small
    with create_or_open(folder / "lake", read_only=True) as lake:
        digest = lake.query("SELECT recipe_digest FROM datasets")[0][0]
    assert validate(yaml.safe_load(found.findtext(".//pre") or ""), "small").digest() == digest


def test_the_funnel_says_how_many_each_rule_dropped(small: tuple[Path, html.HtmlElement]):
    folder, found = small
    with create_or_open(folder / "lake", read_only=True) as lake:
        funnel = lake.query("SELECT rule, n_dropped, n_in - n_dropped FROM funnel ORDER BY position")
    rows = found.get_element_by_id("funnel").find_class("step")
    assert [row.findtext(".//b") for row in rows] == [rule for rule, _, _ in funnel]
    for row, (_, dropped, left) in zip(rows, funnel, strict=True):
        assert text(row.find_class("n")[0]) == (f"−{dropped:,} · {left:,}" if dropped else f"{left:,}")


def test_a_threshold_is_drawn_on_the_scores_that_its_rule_compares(small: tuple[Path, html.HtmlElement]):
    rule, length = (small[1].get_element_by_id(each) for each in ("rule-short_side", "sentence-length"))
    (chart,) = rule.find_class("chart")
    (edge,) = chart.find_class("edge")
    low, high = float(chart.get("data-low")), float(chart.get("data-high"))
    assert low + float(edge.get("x1")) / 600 * (high - low) == pytest.approx(40, abs=0.1)
    falls = [text(bar) for bar in chart.find_class("falls") if not text(bar).endswith(": 0")]
    assert len(falls) == 1 and falls[0].endswith(": 1")  # 1 of 30 pictures is narrower
    assert len(length.find_class("edge")) == 2
    charts = small[1].get_element_by_id("scores").find_class("chart")
    assert "sharpness" in {chart.get("aria-label").partition(":")[0] for chart in charts}
    assert not small[1].get_element_by_id("scores").find_class("edge")


@pytest.mark.slow
def test_a_models_values_that_a_repeat_may_carry_over_a_threshold_are_counted(tmp_path: Path):
    rules = {"best_similarity >= 0.4991": 12, "best_similarity >= 0.4989": 0, "width >= 40": 0}
    asked = tuple({"name": f"asked_{n}", "keep": keep} for n, keep in enumerate(rules))
    found = page(tmp_path, pictures=12, similarity=0.5, image_rules=asked)
    for n, near in enumerate(rules.values()):
        said = text(found.get_element_by_id(f"rule-asked_{n}").find_class("axis")[0])
        assert (f"{near} near a threshold" in said) == (near > 0), said


def test_clusters_are_shown_before_and_after_balance(small: tuple[Path, html.HtmlElement]):
    titles = [title.text for title in small[1].get_element_by_id("balance").iter("title")]
    assert titles == [f"rank {rank}: {before} before, 3 after" for rank, before in ((1, 11), (2, 9), (3, 9))]


def test_the_work_of_a_step_is_told_once_though_its_jobs_fill_several_tables(small: tuple[Path, html.HtmlElement]):
    rows = [[text(cell) for cell in row] for row in small[1].get_element_by_id("steps").iter("tr")][1:]
    assert [row[0] for row in rows] == ["ingest"]
    assert rows[0][1] == "3.8 s"  # 1.25 s each of three shards
    assert "images\xa030" in small[1].get_element_by_id("steps").text_content()


@pytest.mark.slow
def test_notes_of_workers_stand_beside_the_work(tmp_path: Path):
    published(tmp_path / "lake")
    with create_or_open(tmp_path / "lake") as lake:
        lake.execute("INSERT INTO runs VALUES ('r1', 'curate', 'small', 'completed', '2026-01-01', NULL, '')")
        runs.add_note(lake, "r1", "answers are <b>slower</b> here")
    assert "Note of run r1: answers are <b>slower</b> here" in text(reported(tmp_path).get_element_by_id("steps"))


@pytest.mark.slow
def test_the_gallery_is_drawn_by_the_hash_of_the_ids_and_each_pair_has_its_own_picture_and_texts(tmp_path: Path):
    found = page(tmp_path, cap=12, image_rules=())
    ids = {text_id("image", str(n)): n for n in range(12)}
    drawn = sorted(ids, key=lambda each: hashlib.sha256(f"{each}0".encode()).hexdigest())
    pairs = found.get_element_by_id("pairs").findall(".//article")
    assert [pair.findtext(".//code") for pair in pairs] == drawn
    assert [pair.find(".//img").get("src") for pair in pairs] == [thumbnail(picture(ids[each])) for each in drawn]
    for pair in pairs:
        assert [text(row) for row in pair.iter("li")] == [
            "0.500 A red fox sleeps in the sun.",
            "0.400 The old bridge crosses the river twice.",
            "0.300 Two boats wait for the wind.",
        ]
        assert "A coloured field." in text(pair) and "field" in text(pair)


@pytest.mark.slow
def test_a_picture_whose_bytes_are_damaged_is_said_to_be(tmp_path: Path):
    published(tmp_path / "lake", pictures=2, image_rules=())
    file = next(f for f in (tmp_path / "lake").rglob("payloads/**/*.parquet") if picture(0) in f.read_bytes())
    whole = file.read_bytes()
    at = whole.index(picture(0)) + 60
    file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    pairs = reported(tmp_path).get_element_by_id("pairs").findall(".//article")
    assert [text(each) for pair in pairs for each in pair.find_class("lost")] == ["no picture: damaged"]
    assert len(pairs) == 2


def test_a_thumbnail_is_a_small_webp_and_none_for_what_does_not_decode():
    data = base64.b64decode(thumbnail(picture(29)).removeprefix("data:image/webp;base64,"))
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == "WEBP" and SIDE - 2 <= max(image.size) <= SIDE
    assert thumbnail(b"<html>") == ""


def test_a_thumbnail_of_noise_is_made_worse_so_that_the_page_stays_small():
    out = io.BytesIO()
    Image.effect_noise((600, 600), 90).convert("RGB").save(out, "PNG")
    assert len(base64.b64decode(thumbnail(out.getvalue()).partition(",")[2])) <= MOST_BYTES


@pytest.mark.slow
def test_what_the_shipped_small_models_made_is_marked_as_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    published(tmp_path / "lake")
    listed = ["datasets", "--lake", str(tmp_path / "lake"), "--format", "csv"]
    plain = reported(tmp_path)
    assert main(listed) == 0 and ",demo," not in capsys.readouterr().out
    assert not plain.find_class("demo") and "caption · demo" not in text(plain)
    with create_or_open(tmp_path / "lake") as lake:
        for digest, name in DEMO_WEIGHTS.items():
            made = {"captioner": "captions", "clip": "image_embedding"}.get(name, "")
            lake.execute("UPDATE scorers SET model = ? WHERE name = ?", (digest, made))
        found = outcome_in(lake, "small")
    print_outcome(console(), found, [])
    said = capsys.readouterr().out
    assert "pairs (published), recall of the retrieval 0.900, by the demo's weights" in said
    assert "caption   demo A coloured field." in said and main(listed) == 0
    assert ",demo," in capsys.readouterr().out
    marked = reported(tmp_path)
    assert "(captioner, clip)" in text(marked.find_class("demo")[0]) and "caption · demo" in text(marked)


@pytest.mark.slow
def test_texts_of_the_web_stay_texts(tmp_path: Path):
    found = page(
        tmp_path, sentences=(f"A red fox {HOSTILE}",), alt_text=HOSTILE, caption=HOSTILE, tags=(HOSTILE,),
        url=f"javascript:alert({{n}}) {HOSTILE}", faults=((HOSTILE, "undecodable", HOSTILE),),
    )  # fmt: skip
    assert not list(found.iter("script", "iframe", "object", "embed", "form", "base", "link[@rel='stylesheet']"))
    assert not [name for element in found.iter() for name in element.attrib if name.lower().startswith("on")]
    links = [link.get("href") for link in found.iter("a")]
    assert links and all(link.startswith("#") for link in links)  # an address that is not http is no link
    assert {image.get("alt") for image in found.iter("img")} == {visible(HOSTILE), "no alt text"}
    assert "\u202e" not in text(found)
    assert text(found.get_element_by_id("pairs")).count("<script>alert(1)</script>") >= 4
    assert text(found.get_element_by_id("quarantine")).count("<script>alert(1)</script>") == 2


def test_it_asks_nothing_of_the_network(small: tuple[Path, html.HtmlElement]):
    found = small[1]
    sources = {element.get(name) for element in found.iter() for name in ("src", "srcset", "data") if element.get(name)}
    assert sources and all(source.startswith("data:") for source in sources)
    assert [link.get("href") for link in found.iter("link")] == ["data:,"]
    style = found.findtext(".//style") or ""
    assert "url(" not in style and "@import" not in style
    allowed = found.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert allowed == [
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pictures": 0, "sentences": (), "faults": ()}, ["No pair was left", "No picture came as far"]),
        pytest.param({"sentences": ()}, ["No pair was left"], marks=pytest.mark.full),
        pytest.param(
            {"caption": "", "tags": (), "similarity": None, "clusters": 1, "faults": (), "image_rules": ODD},
            ["recipe names no captioner", "A red fox", "1 cluster of pictures, largest", "everything could be read"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_dataset_that_lacks_something_has_a_report_all_the_same(tmp_path: Path, changes: dict, said: list[str]):
    shown = text(page(tmp_path, **changes))
    assert [each for each in said if each not in shown] == []


@pytest.mark.slow
def test_it_stays_small_with_texts_of_a_megabyte(tmp_path: Path):
    long = "word " * 200_000
    published(
        tmp_path / "lake", pictures=30, cap=30, alt_text=long, url="https://example.org/" + "x" * 1_000_000,
        caption=long, faults=(("x" * 1_000_000, "truncated", long),),
    )  # fmt: skip
    reported(tmp_path)
    assert (tmp_path / "deep" / "report.html").stat().st_size < 1_000_000


@pytest.mark.slow
def test_a_report_that_is_damaged_or_of_another_lake_is_not_shown_as_this_lakes(tmp_path: Path):
    published(tmp_path / "one", pictures=2, image_rules=())
    with create_or_open(tmp_path / "one", read_only=True) as lake:
        file = Path(ensure_report(lake, found := find(lake, "small@1")))
        whole = file.read_bytes()
        for other in (whole.replace(b"small", b"smell", 1), whole[:-100], b""):
            file.write_bytes(other)
            assert not is_report_of(str(file), found)
            assert Path(ensure_report(lake, found)).read_bytes() == whole
        before = file.stat().st_mtime_ns
        ensure_report(lake, found)
        assert file.stat().st_mtime_ns == before, "a whole one is not written again"
        assert not is_report_of(str(file), replace(found, run_id="another lake's")) and is_report_of(str(file), found)


def test_a_version_that_is_not_there_is_named_with_the_remedy(small: tuple[Path, html.HtmlElement], tmp_path: Path):
    with (
        create_or_open(small[0] / "lake", read_only=True) as lake,
        pytest.raises(PairmillError, match="no version 7; its newest is small@1"),
    ):
        write_report(lake, "small", 7, str(tmp_path / "report.html"))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_audit_says_how_many_wrong_texts_a_rule_accepts(tmp_path: Path):
    rules = ({"name": "clip", "keep": "best_similarity >= 0.4"}, {"name": "strict", "keep": "match_similarity < 0.4"})
    audit = text(page(tmp_path, image_rules=rules, pictures=6).get_element_by_id("association"))
    assert "clip accepts 100 % (54.1 to 100 %) of the best sentences of 6 pictures" in audit
    assert "strict accepts 0 % (0 to 45.9 %)" in audit
