"""A run that scores pairs of a picture and a text: which pairs have a row, what rules and ranks do, what is redone."""

from pathlib import Path

import pytest

from tests.reference.second_cut import agrees
from tests.worlds.commands import Tell
from tests.worlds.line import curate, rows, work_done
from tests.worlds.shared import copied
from tests.worlds.tiny_matcher import tiny_blip

STEPS = {"match texts", "match texts of captions", "match texts of fused texts"}


@pytest.fixture(scope="module")
def matcher(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_blip(tmp_path_factory.mktemp("matcher"))


@pytest.mark.slow
def test_candidates_are_scored_once_and_rules_and_ranks_read_them(
    curated: Path, tmp_path: Path, pages: Path, settings: dict[str, str], matcher: str, tell: Tell
):
    lake = copied(curated, tmp_path / "lake")
    asked = settings | {"models.itm": matcher, "association.rank_by": "itm_score"}
    _, counts = curate(lake, pages, settings=asked)
    assert {"match texts"} <= set(work_done(counts)) <= {"match texts", "fuse", "fuse, told before",
                                                          "score fused texts", "caption main", "score captions", "tag",
                                                          "next wave", "assign balance clusters"}  # fmt: skip
    ((pairs, distinct, lacking),) = rows(
        lake, "SELECT count(*), count(DISTINCT (sha256, content)), count(*) FILTER (itm_score IS NULL) FROM itm"
    )
    assert pairs == distinct > 0 == lacking
    # Where no limit of uses decides, the first text of a picture is its candidate with the highest score.
    best = rows(
        lake,
        "SELECT p.text1 = arg_max(c.text, i.itm_score) FROM pairs p JOIN itm i USING (sha256) "
        "JOIN sentence_content c USING (content) WHERE version = 2 AND p.text3 IS NOT NULL "
        "GROUP BY p.image_id, p.text1",
    )
    assert sum(is_best for (is_best,) in best) >= 0.9 * len(best) > 0
    ((changed,),) = rows(lake, "SELECT count(*) FROM pairs a JOIN pairs b USING (image_id) WHERE a.version = 1 AND "
                               "b.version = 2 AND a.text1 <> b.text1")  # fmt: skip
    assert changed > 0
    published, counts = curate(lake, pages, settings=asked)
    assert (work_done(counts), published.is_new) == ({}, False)
    assert agrees(lake, "demo@2")
    ((median,),) = rows(lake, "SELECT median(itm_score) FROM itm")
    tell("recut", "demo@2", "--lake", str(lake), "--set",
         f"candidates=[{{name: fits, keep: 'itm_score >= {median}'}}]")  # fmt: skip
    unfit = rows(
        lake,
        "SELECT 1 FROM pairs p JOIN sentence_content c ON c.text = p.text1 JOIN itm i ON i.sha256 = p.sha256 AND "
        f"i.content = c.content WHERE version = 3 AND i.itm_score < {median}",
    )
    assert not unfit
    assert agrees(lake, "demo@3")


@pytest.mark.slow
def test_generated_texts_are_scored_in_the_wave_and_again_when_a_text_changes(
    curated: Path, tmp_path: Path, pages: Path, settings: dict[str, str], matcher: str
):
    lake = copied(curated, tmp_path / "lake")
    asked = settings | {
        "models.itm": matcher, "images.pair_similarity.keep": "synthetic_similarity >= -1 and caption_itm_score >= 0",
        "scores": "{synthetic_itm: {}}",
    }  # fmt: skip
    _, counts = curate(lake, pages, settings=asked)
    assert set(work_done(counts)) >= STEPS - {"match texts"}
    assert "match texts" not in work_done(counts)
    for table, column in (("captions", "text"), ("synthetic", "synthetic_text")):
        score = "caption_itm" if table == "captions" else "synthetic_itm"
        ((unlike,),) = rows(
            lake,
            f"SELECT count(*) FROM {table} t LEFT JOIN {score} s ON s.sha256 = t.sha256 AND "
            f"s.input_digest = left(sha256(t.{column}), 32) WHERE s.{score}_score IS NULL",
        )
        assert unlike == 0
    _, counts = curate(lake, pages, settings=asked | {"captioners.0.max_tokens": "6"})
    assert "match texts of captions" in work_done(counts)
