"""Every filter of a gallery counts what SQL counts, alone and with others, and pages hold each image once, in order."""

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from pairmill.catalog.queries.gallery.gallery_query import Choice, Gallery, ImageSet, SortOrder
from pairmill.catalog.terms.error import BadPredicate, PairmillError

N = 400
COLUMNS = {
    "image_id": "md5('image' || n)", "sha256": "md5('bytes' || n % 300)", "shard": "'s'", "alt_text": "'alt'",
    "url": "'u'", "width": "(n % 90)::INTEGER", "height": "60", "format": "if(n % 3 = 0, 'png', 'jpeg')",
    "sharpness": "CASE n % 5 WHEN 0 THEN NULL WHEN 1 THEN 'nan'::DOUBLE ELSE (n % 7) / 2 END",
    "dropped_by": "CASE n % 4 WHEN 0 THEN '' WHEN 1 THEN 'short_side' WHEN 2 THEN 'balance' END", "_value": "NULL",
    "_text1": "'it''s'", "_caption": "'a caption'", "_fused": "'a text'",
    "_source": "'pages-' || n % 2", "_domain": "'d' || n % 6 || '.example'",
    "_language": "if(n % 5 = 0, 'de', 'en')", "_tags": "['t' || n % 4, 'all']", "cluster": "n % 11",
    "group_id": "'g' || n % 40", "caption_status": "if(n % 8 = 0, 'empty', 'ok')",
}  # fmt: skip


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    path = tmp_path_factory.mktemp("gallery") / "g.duckdb"
    each = ", ".join(f"{sql} AS {name}" for name, sql in COLUMNS.items())
    with duckdb.connect(str(path)) as made:
        rows = f"SELECT {each} FROM range({N}) t(n)"
        place = "row_number() OVER (ORDER BY image_id) - 1 AS _place"
        made.execute(f"CREATE TABLE images AS SELECT {place}, * FROM ({rows}) ORDER BY image_id")
    opened = Gallery(path)
    yield opened
    opened.close()


FILTERS = {
    "fate=kept": ({"fate": "kept"}, "dropped_by = ''"),
    "fate=dropped": ({"fate": "dropped"}, "dropped_by <> ''"),
    "a rule": ({"fate": "balance"}, "dropped_by = 'balance'"),
    "source": ({"source": "pages-1"}, "_source = 'pages-1'"),
    "domain": ({"domain": "d2.example"}, "_domain = 'd2.example'"),
    "language": ({"language": "de"}, "_language = 'de'"),
    "format": ({"format": "png"}, "format = 'png'"),
    "cluster": ({"cluster": 0}, "cluster = 0"),
    "group": ({"group": "g7"}, "group_id = 'g7'"),
    "tag": ({"tag": "t3"}, "list_contains(_tags, 't3')"),
    "status": ({"status": "empty"}, "caption_status = 'empty'"),
    "score": ({"score": "width", "low": 10.0, "high": 20.0}, "width BETWEEN 10 AND 20"),
    "from": ({"score": "width", "low": 80.0}, "width >= 80"),
    "rule": ({"where": "width > 40 or format = 'png'"}, "width > 40 OR format = 'png'"),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_counts_what_sql_counts_alone_and_with_a_source_and_a_fate(gallery: Gallery, name: str) -> None:
    given, where = FILTERS[name]
    for more, also in (
        ({}, "true"),
        ({"source": "pages-1"}, "_source = 'pages-1'"),
        ({"fate": "kept"}, "dropped_by = ''"),
    ):
        if more.keys() & given.keys():
            continue
        expected = gallery.rows(f"SELECT count(*) AS n FROM images WHERE ({where}) AND {also}")[0]["n"]
        choice = Choice(**given, **more)
        assert gallery.count(choice) == expected and (more or 0 < expected < N)
        decided = gallery.rows(
            f"SELECT count(dropped_by) AS n FROM images WHERE {'true' if 'fate' in given else f'({where})'} "
            f"AND {'true' if 'fate' in more else also}"
        )
        assert sum(n for _, n in gallery.fates(choice)) == decided[0]["n"]  # whatever the fate that is asked for


@pytest.mark.parametrize(
    "order", [SortOrder(), SortOrder("width"), SortOrder("sharpness"), SortOrder("sharpness", True)]
)
def test_pages_hold_each_image_once_in_order_whatever_the_page_size(gallery: Gallery, order: SortOrder) -> None:
    key = f"coalesce({'-' if order.descending else ''}{order.column or 0}, 'inf'::DOUBLE), image_id"
    expected = [row["image_id"] for row in gallery.rows(f"SELECT image_id FROM images WHERE width > 5 ORDER BY {key}")]
    for rows in (7, 60, N):
        found, after = [], ""
        while True:
            page = gallery.page(Choice(where="width > 5"), order, after, rows)
            found += [image["image_id"] for image in page.images]
            if not (after := page.after):
                break
        assert found == expected


def test_an_area_restricts_pages_counts_and_fates(gallery: Gallery) -> None:
    shas = [row["sha256"] for row in gallery.rows("SELECT DISTINCT sha256 FROM images ORDER BY 1 LIMIT 20")]
    choice = Choice(sets=(ImageSet(pa.table({"sha256": shas})),))
    within = [row["image_id"] for row in gallery.rows("SELECT image_id, sha256 FROM images ORDER BY 1")
              if row["sha256"] in shas]  # fmt: skip
    assert gallery.count(choice) == len(within) > 20
    assert [image["image_id"] for image in gallery.page(choice).images] == within
    assert sum(n for _, n in gallery.fates(choice)) <= len(within)


@pytest.mark.parametrize("after", ["x,y", "1.0,", "1.0,nosuch", ",", "nan"])
def test_a_key_of_no_image_is_refused(gallery: Gallery, after: str) -> None:
    with pytest.raises(PairmillError, match="no place in a gallery"):
        gallery.page(Choice(), after=after)


def test_a_filter_that_fails_on_a_value_says_so(gallery: Gallery) -> None:
    with pytest.raises(BadPredicate, match="cannot be computed"):
        gallery.page(Choice(where="CAST(format AS INTEGER) = 1"))
