"""A recipe that drops duplicates of sentences, over a lake that was made without."""

from collections import Counter
from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.flows.pages.html_report import write_report
from tests.worlds.commands import Tell
from tests.worlds.line import curate, rows, work_done

# Without generated texts: which sentence a picture has is decided before any is generated.
NO_TEXTS = {"captioners": "[]", "tags": "null", "fuse": "null", "images": "[]"}
WITHOUT = {"sentence_duplicates": "null"}
ASKED = {"sentence_duplicates": "{jaccard: 0.7, cosine: 0.99999}"}


@pytest.mark.slow
def test_a_lake_without_groups_is_grouped_by_the_next_run_that_asks_for_them(
    tell: Tell, tmp_path: Path, pages: Path, settings: dict[str, str]
):
    lake, settings = tmp_path / "lake", settings | NO_TEXTS
    curate(lake, pages, settings=settings | WITHOUT)
    ((text,),) = rows(lake, "SELECT text1 FROM pairs ORDER BY image_id LIMIT 1")
    assert "kept" in tell("why", text, "--lake", str(lake))
    published, counts = curate(lake, pages, settings=settings | ASKED)
    assert published.version == 2
    redone = {"score sentences", "perceptual sentence duplicates", "semantic sentence duplicates",
              "group sentence duplicates", "associate", "score similarity"}  # fmt: skip
    assert set(work_done(counts)) == redone
    group_of = dict(rows(lake, "SELECT text, group_id FROM sentence_groups JOIN sentence_content USING (content)"))
    given = rows(lake, "SELECT text1, text2, text3 FROM pairs WHERE version = 2")
    for texts in given:
        of = [group_of.get(each, each) for each in texts if each]
        assert len(set(of)) == len(of)
    of_group = {group: {text for text in group_of if group_of[text] == group} for group in set(group_of.values())}
    assert max(Counter(len(texts & {each for row in given for each in row}) for texts in of_group.values())) <= 1
    n_in, dropped = rows(lake, "SELECT n_in, n_dropped FROM funnel WHERE version = 2 AND kind = 'sentence' "
                         "AND rule = 'duplicate'")[0]  # fmt: skip
    assert 0 < dropped < n_in
    _explained(tell, lake)
    report = lake.parent / "report.html"
    with create_or_open(lake, read_only=True) as opened:
        write_report(opened, "demo", 2, str(report))
    assert "sentences are near copies" in " ".join(report.read_text().split())
    before, counts = curate(lake, pages, settings=settings | WITHOUT)
    assert before.content_digest == rows(lake, "SELECT content_digest FROM datasets WHERE version = 1")[0][0]
    assert not work_done(counts)


def _explained(tell: Tell, lake: Path) -> None:
    """`why` of a picture names the candidate that a text was given for, and of a sentence which one stands for it."""
    candidates = ("SELECT 1 FROM match_candidates m WHERE m.sha256 = p.sha256 AND m.content = c.content "
                  "AND m.scorer IN (SELECT unnest(scorers) FROM datasets WHERE version = 2)")  # fmt: skip
    image, text, keeper = rows(
        lake,
        "SELECT image_id, p.text1, c.content FROM pairs p JOIN sentence_content c ON c.text = p.text1 "
        f"WHERE version = 2 AND NOT EXISTS ({candidates}) ORDER BY image_id LIMIT 1",
    )[0]
    told = " ".join(tell("why", image, "--lake", str(lake)).split())
    assert f"as its duplicate: {' '.join(text.split())}" in told
    group = f"SELECT group_id FROM sentence_groups WHERE content = '{keeper}'"
    others = rows(
        lake,
        f"SELECT content FROM sentence_groups WHERE content > '{keeper}' AND group_id = ({group}) ORDER BY content",
    )
    told = [tell("why", content, "--lake", str(lake)) for (content,) in others[:5]]
    assert any(f"dropped by duplicate ({keeper})" in each and "stands for all" in each for each in told)
