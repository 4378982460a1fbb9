"""Every figure and picture of the report is what the lake's own tables give by another query."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
from lxml import html

from pairmill.catalog.lake.opening import create_or_open
from pairmill.flows.pages.html_report import write_report
from tests.worlds.line import curated_lake, rows
from tests.worlds.published import published

OF_VERSION = "dataset = 'demo' AND version = 1"
Query = Callable[[str], list[tuple]]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(copytree(curated_lake(), tmp_path_factory.mktemp("figures") / "lake"))


@pytest.fixture(scope="module")
def query(lake: Path) -> Query:
    return lambda sql: rows(lake, sql.replace("OF_VERSION", OF_VERSION))


@pytest.fixture(scope="module")
def page(lake: Path) -> html.HtmlElement:
    return written(lake, "demo", 1)


def written(lake: Path, name: str, version: int) -> html.HtmlElement:
    with create_or_open(lake, read_only=True) as opened:
        return html.fromstring(Path(write_report(opened, name, version, str(lake.parent / "page.html"))).read_bytes())


def text(element: html.HtmlElement) -> str:
    return " ".join(element.text_content().split())


def shots(element: html.HtmlElement) -> list[str]:
    return [shot.get("data-id") or "" for shot in element.find_class("item")]


def cards(page: html.HtmlElement, section: str) -> list[html.HtmlElement]:
    return page.get_element_by_id(section).find_class("card")


def numbers(said: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(r"-?[\d,]*\d(?:\.\d+)?", said)]


def table(element: html.HtmlElement) -> list[list[str]]:
    return [[text(cell) for cell in row.findall("td")] for row in element.iter("tr") if row.findall("td")]


def test_the_first_screen_has_pictures_kept_and_dropped_by_each_rule(page: html.HtmlElement, query: Query):
    kept, dropped = page.find_class("first")[0].find_class("strip")
    fates = dict(query("SELECT item_id, dropped_by FROM decisions WHERE OF_VERSION AND kind = 'image'"))
    assert {fates[each] for each in shots(kept)} == {""} and len(shots(kept)) == 8
    rules = set(fates.values()) - {""}
    assert {fates[each] for each in shots(dropped)} == rules - {"readable"}  # of which there are no pictures to show
    assert f"by {len(rules)} rules" in text(page.find_class("first")[0])


def test_each_rule_has_pictures_that_it_dropped(page: html.HtmlElement, query: Query):
    known = query(
        "SELECT dropped_by, count(*), count(DISTINCT sha256), list(item_id) FROM decisions JOIN (SELECT DISTINCT "
        "image_id, sha256 FROM images) ON image_id = item_id WHERE OF_VERSION AND dropped_by <> '' GROUP BY ALL"
    )
    by_rule = {(card.findtext("h3") or "").strip(): card for card in cards(page, "dropped")}
    for rule, n, pictures, ids in known:
        counts = numbers(text(by_rule[rule].find("h3").find_class("count")[0]))
        assert counts[0] == n and (counts[2:] == [pictures] if pictures < n else len(counts) == 2)
        strip = shots(by_rule[rule].find_class("strip")[0])
        assert len(strip) == min(12, pictures) and set(strip) <= set(ids), rule


def test_the_pictures_beside_a_threshold_are_the_nearest_ones(page: html.HtmlElement, query: Query):
    sizes = [
        side for (side,) in query(
            "SELECT least(any_value(width), any_value(height)) FROM images JOIN decisions ON item_id = image_id "
            "WHERE OF_VERSION AND decisions.kind = 'image' GROUP BY sha256"
        )
    ]  # fmt: skip
    card = next(each for each in cards(page, "dropped") if (each.find("h3").text or "").strip() == "short_side")
    below, above = card.find_class("halves")[0].iterchildren("div")
    assert [text(each.find("h3")) for each in (below, above)] == ["below 64", "from 64"]
    for side, expected in ((below, sorted((s for s in sizes if s < 64), reverse=True)),
                           (above, sorted(s for s in sizes if s >= 64))):  # fmt: skip
        assert [int(text(line)) for line in side.find_class("value")] == expected[:8]


@pytest.mark.slow
@pytest.mark.parametrize("column", ["similarity1", "caption_similarity", "synthetic_similarity"])
def test_the_best_and_worst_pairs_are_the_extremes_of_all(page: html.HtmlElement, query: Query, column: str):
    card = next(each for each in cards(page, "extremes") if each.findtext("h3/code") == column)
    worst, best = card.find_class("strip")
    for strip, order in ((worst, "ASC"), (best, "DESC")):
        expected = query(
            f"SELECT image_id, {column} FROM pairs WHERE OF_VERSION ORDER BY {column} {order}, image_id LIMIT 10"
        )
        shown = zip(shots(strip), (float(text(each)) for each in strip.find_class("value")), strict=True)
        assert list(shown) == [(image_id, pytest.approx(value, abs=6e-4)) for image_id, value in expected]


def test_a_group_of_duplicates_shows_its_keeper_first(page: html.HtmlElement, query: Query):
    keeper_of = dict(query("SELECT item_id, value FROM decisions WHERE OF_VERSION AND dropped_by = 'duplicate'"))
    groups = cards(page, "duplicates")
    assert len(groups) == min(8, len(set(keeper_of.values())))
    for group in groups:
        keeper, *others = shots(group)
        assert "the keeper" in text(group.find_class("item")[0])
        assert {keeper_of[each] for each in others if each in keeper_of} == {keeper}


def test_clusters_are_those_with_most_pairs(page: html.HtmlElement, query: Query):
    sizes = query("SELECT cluster, count(*) AS n FROM pairs WHERE OF_VERSION GROUP BY ALL ORDER BY n DESC, 1 LIMIT 12")
    found = cards(page, "clusters")
    assert [tuple(map(int, numbers(text(card.find_class("count")[0])))) for card in found] == sizes
    cluster_of = dict(query("SELECT image_id, cluster FROM pairs WHERE OF_VERSION"))
    assert all({cluster_of[each] for each in shots(card)} == {n} for card, (n, _) in zip(found, sizes, strict=True))


def test_the_breakdown_counts_images_and_kept_ones(page: html.HtmlElement, query: Query):
    by_format = query(
        "SELECT format, count(*) AS n, count(*) FILTER (dropped_by = '') FROM decisions JOIN (SELECT DISTINCT "
        "image_id, format FROM images) ON image_id = item_id WHERE OF_VERSION AND kind = 'image' GROUP BY 1 "
        "ORDER BY n DESC, 1"
    )
    by_name = {text(card.find("h3")): table(card) for card in cards(page, "breakdown")}
    shown = [(row[0], int(row[1].replace(",", "")), int(row[2].replace(",", ""))) for row in by_name["Format"]]
    assert shown == by_format
    (source,) = query("SELECT DISTINCT source FROM documents")[0]
    assert by_name["Source"][0][:2] == [source, f"{sum(n for _, n, _ in by_format):,}"]
    for row in by_name["Format"]:
        assert float(row[3]) == pytest.approx(
            100 * float(row[2].replace(",", "")) / float(row[1].replace(",", "")), 0.01
        )


def test_the_audit_counts_reuse_and_own_sentences(page: html.HtmlElement, query: Query):
    texts = "SELECT document_id, unnest([text1, text2, text3]) AS text FROM pairs WHERE OF_VERSION"
    given = query(f"SELECT * FROM ({texts}) WHERE text IS NOT NULL")
    used = Counter(text for _, text in given)
    own = defaultdict(set)
    for document, said in query("SELECT document_id, c.text FROM sentences JOIN sentence_content c USING (content)"):
        own[document].add(said)
    figures, hubs = cards(page, "association")[:2]
    said = dict(
        zip((text(each) for each in figures.iter("dt")), (text(each) for each in figures.iter("dd")), strict=True)
    )
    assert numbers(said["sentences given"]) == [len(given), len(used)]
    most = used.most_common(10)
    assert [int(row[0]) for row in table(hubs)] == [n for _, n in most]
    assert all(used[row[1]] == int(row[0]) for row in table(hubs))
    assert numbers(said["hubs"]) == [10, pytest.approx(100 * sum(n for _, n in most) / len(given), 0.005)]
    assert numbers(said["own document"])[:2] == [sum(t in own[d] for d, t in given), len(given)]
    recall = query("SELECT recall FROM datasets")[0][0]
    assert float(said["recall@3"].split()[0]) == pytest.approx(recall, abs=6e-4)


def test_the_audit_tells_similarities_by_rank(page: html.HtmlElement, query: Query):
    figures = cards(page, "association")[0]
    for row in table(figures):
        expected = query(
            f"SELECT count(s), avg(s), min(s), max(s) FROM (SELECT similarity{row[0]} AS s FROM pairs WHERE OF_VERSION)"
        )[0]
        assert [float(cell.replace(",", "")) for cell in row[1:]] == pytest.approx(expected, abs=6e-4)


def test_distributions_count_every_pair(page: html.HtmlElement, query: Query):
    charts = {
        chart.get("aria-label").partition(":")[0]: chart
        for section in ("association", "texts") for chart in page.get_element_by_id(section).find_class("chart")
    }  # fmt: skip
    drawn = {
        name: sum(int(text(bar).rpartition(": ")[2].replace(",", "")) for bar in chart.iter("title"))
        for name, chart in charts.items()
    }
    columns = {"similarity1": "similarity1", "caption_similarity": "caption_similarity", "words of caption": "caption",
               "words of first sentence": "text1", "words of fused text": "syn_text"}  # fmt: skip
    for name, column in columns.items():
        assert (
            drawn.get(name, 0)
            == query(f"SELECT count(nullif(CAST({column} AS VARCHAR), '')) FROM pairs WHERE OF_VERSION")[0][0]
        )
    longest = max(len(said.split()) for (said,) in query("SELECT text1 FROM pairs WHERE OF_VERSION"))
    assert float(charts["words of first sentence"].get("data-high")) == longest + 1  # its bin ends there


@pytest.mark.slow
def test_the_difference_to_the_version_before_is_told_by_cause(tmp_path: Path):
    lake = tmp_path / "lake"
    published(lake, pictures=18, cap=2, clusters=3)
    with_rule = ({"name": "short_side", "keep": "least(width, height) >= 70"},)
    published(lake, pictures=18, cap=4, clusters=3, image_rules=with_rule)
    pairs = "SELECT image_id FROM pairs WHERE version = {}"
    page = written(lake, "small", 2)
    found = [text(each.find("h3")) for each in page.get_element_by_id("changes").find_class("changed")]
    expected = []
    for kind, one, other, absent in (("Gained", 2, 1, "new"), ("Lost", 1, 2, "gone")):
        why = dict(rows(lake, f"SELECT item_id, dropped_by FROM decisions WHERE version = {other}"))
        alone = [each for (each,) in rows(lake, f"{pairs.format(one)} EXCEPT {pairs.format(other)}")]
        for cause, n in sorted(
            Counter(why.get(each, absent) for each in alone).items(), key=lambda item: (-item[1], item)
        ):
            said = {"short_side": "rule", "balance": "balance"}[cause]
            was = "was dropped by" if kind == "Gained" else "dropped by"
            expected.append(f"{kind}: {n} {was} {cause} ({said})")
    assert [said for said in found if "Changed" not in said] == expected and len(expected) > 1
    assert "Since small@1" in text(page.get_element_by_id("changes"))
    assert "changes" not in {each.get("id") for each in written(lake, "small", 1).iter("section")}


@pytest.mark.slow
def test_images_that_fail_several_rules_are_counted_alone_and_together(tmp_path: Path):
    published(tmp_path / "lake", pictures=12)
    with create_or_open(tmp_path / "lake") as opened:
        (first,), (second,), (third,) = opened.query("SELECT item_id FROM decisions ORDER BY 1 LIMIT 3")
        steps = dict(opened.query("SELECT rule, position FROM funnel WHERE kind = 'image'"))
        one, other = (1 << steps[rule] for rule in ("short_side", "balance"))
        for item, bits in ((first, one | other), (second, one), (third, other)):
            opened.execute(f"UPDATE decisions SET failed = {bits} WHERE item_id = '{item}'")
        rest = f"item_id NOT IN ('{first}', '{second}', '{third}')"
        opened.execute(f"UPDATE decisions SET failed = 0 WHERE {rest}")
    [(name, version)] = rows(tmp_path / "lake", "SELECT name, version FROM datasets")
    found = table(written(tmp_path / "lake", name, version).get_element_by_id("overlap"))
    assert found == [["short_side", "2", "1", "·", "1"], ["balance", "2", "1", "1", "·"]]
