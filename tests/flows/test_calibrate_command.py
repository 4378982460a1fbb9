"""`pairmill calibrate`: from a drawn CSV to a threshold, on lakes in which the wrong pairs are known."""

import csv
import json
from pathlib import Path

import pytest

import pairmill as pm
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.queries.gallery.gallery_file import gallery_file
from pairmill.catalog.queries.gallery.gallery_query import Gallery
from pairmill.catalog.queries.judge.judged_samples import JudgedSample, draw_sample, images_of, judged_threshold
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.write.judgement_log import Judgement
from pairmill.flows.command.cli import main
from tests.worlds.commands import Tell
from tests.worlds.published import published
from tests.worlds.shared import copied, made_once

PICTURES = 90
RULES = ({"name": "wide", "keep": "width >= 40"},)
WRONG = {text_id("image", str(n)) for n in range(40)}  # all below 430 pixels


@pytest.fixture(scope="module")
def wide() -> Path:
    return made_once(
        "wide", lambda place: published(place, pictures=PICTURES, cap=PICTURES, image_rules=RULES, faults=())
    )


def verdicts(file: Path, n: int | None = None) -> None:
    """Fill in the first ``n`` verdicts as the truth has them."""
    lines = list(csv.DictReader(file.open(newline="")))
    for line in lines[:n]:
        line["verdict"] = "mismatch" if line["image_id"] in WRONG else "match"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, lines[0])
        writer.writeheader()
        writer.writerows(lines)


@pytest.mark.slow
def test_a_drawn_file_with_verdicts_becomes_a_threshold(wide: Path, tmp_path: Path, tell: Tell, capsys):
    lake, file = copied(wide, tmp_path / "lake"), tmp_path / "labels.csv"
    place = ("calibrate", "small", "wide", "--lake", str(lake))
    assert main([*place]) == 1
    assert "nobody has judged a sample" in capsys.readouterr().err
    assert "80 of 89 pairs with width >= 40" in tell(*place, "--draw", "80", "--to", str(file))
    assert main([*place, "--draw", "80", "--to", str(file)]) == 1, "a file that may hold verdicts stays"
    capsys.readouterr()
    verdicts(file)
    asked = ("--wrong", "at most 20%", "--confidence", "80%", "--candidates", "700,430,300,100", "--format", "json")
    found = json.loads(tell(*place, "--labels", str(file), *asked))
    assert found["judged"] == 80 and found["threshold"] == 430
    outcomes = {each["threshold"]: each["outcome"] for each in found["candidates"]}
    assert outcomes[700] == outcomes[430] == "holds" and outcomes[100] in ("fails", "untested")
    with pm.open(lake) as opened:
        assert opened.calibrate("small", "wide", 0.2, 0.8, (700, 430, 300, 100)).threshold == 430
    assert json.loads(tell(*place, *asked)) == found, "verdicts are in the log, and one of each pair counts"


@pytest.mark.slow
def test_a_score_that_no_rule_reads_is_judged_from_its_lowest_value(wide: Path, tmp_path: Path, tell: Tell):
    lake, file = copied(wide, tmp_path / "lake"), tmp_path / "labels.csv"
    place = ("calibrate", "small", "sharpness", "--lake", str(lake))
    assert "pairs with sharpness >= " in tell(*place, "--draw", "80", "--to", str(file))
    verdicts(file)
    with pm.open(lake) as opened, pytest.raises(PairmillError, match="and no such score"):
        opened.calibrate("small", "sharpnes", 0.2, 0.8)
    asked = ("--wrong", "at most 60%", "--confidence", "80%", "--format", "json")
    found = json.loads(tell(*place, "--labels", str(file), *asked))
    assert found["judged"] == 80 and found["quantity"] == "sharpness"


@pytest.mark.slow
def test_what_stands_beyond_a_gap_or_at_another_place_is_no_label(wide: Path, tmp_path: Path, tell: Tell, capsys):
    lake, file = copied(wide, tmp_path / "lake"), tmp_path / "labels.csv"
    place = ("calibrate", "small", "wide", "--lake", str(lake))
    tell(*place, "--draw", "60", "--to", str(file))
    verdicts(file, 20)
    text = file.read_text().splitlines()
    (tmp_path / "gap.csv").write_text("\n".join([*text[:11], *text[12:]]))
    status = main([*place, "--labels", str(tmp_path / "gap.csv"), "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (status, found["judged"], found["threshold"]) == (1, 10, None)
    (tmp_path / "moved.csv").write_text("\n".join([text[0], text[1].replace(",0,", ",1,", 1)]))
    assert main([*place, "--labels", str(tmp_path / "moved.csv")]) == 1
    assert "line 2: image" in capsys.readouterr().err
    (tmp_path / "odd.csv").write_text("\n".join([text[0], text[1].replace("match", "good")]))
    assert main([*place, "--labels", str(tmp_path / "odd.csv")]) == 1
    assert "a verdict is match, mismatch, unsure or empty" in capsys.readouterr().err


@pytest.mark.slow
def test_a_candidate_below_the_sample_is_refused(wide: Path, tmp_path: Path, tell: Tell, capsys):
    lake, file = copied(wide, tmp_path / "lake"), tmp_path / "labels.csv"
    place = ("calibrate", "small", "wide", "--lake", str(lake))
    tell(*place, "--draw", "10", "--to", str(file))
    assert main([*place, "--candidates", "20,60"]) == 1
    assert "says nothing about 20; draw another from there" in capsys.readouterr().err


@pytest.mark.slow
def test_over_20_seeds_the_planted_share_of_wrong_pairs_is_kept_below_the_bound(wide: Path):
    """Of the pairs at or above t, the truth tells which share is wrong; 5 of 20 above it have a chance of 4 %."""
    with create_or_open(wide, read_only=True) as lake:
        dataset = datasets.find(lake, "small")
        check = next(each for each in plan_of(lake, dataset).image_checks if each.name == "wide")
        with Gallery(gallery_file(lake, dataset)) as gallery:
            broken = chosen = 0
            for seed in range(20):
                sample = draw_sample(gallery, dataset, check, 40.0, f"{seed:032x}")
                judgements = tuple(
                    Judgement(sample_id=sample.sample_id, position=n, image_id=row["image_id"], text="", judge="truth",
                              value=row["value"], verdict="mismatch" if row["image_id"] in WRONG else "match")
                    for n, row in enumerate(images_of(gallery, sample, 60))
                )  # fmt: skip
                found = judged_threshold(gallery, JudgedSample(sample, judgements), 0.2, 0.9)
                if found.threshold is not None:
                    kept = [n for n in range(PICTURES) if 30 + 10 * n >= found.threshold]
                    chosen += 1
                    broken += sum(n < 40 for n in kept) / len(kept) > 0.2
    assert chosen >= 15 and broken <= 4, (chosen, broken)


def test_a_rule_that_is_not_there_is_refused(wide: Path, capsys):
    assert main(["calibrate", "small", "sharp", "--lake", str(wide)]) == 1
    assert (
        "small@1 has no rule 'sharp' on images, and no such score; there are wide, readable" in capsys.readouterr().err
    )
    with pytest.raises(PairmillError, match="no lower threshold"), create_or_open(wide, read_only=True) as lake:
        dataset = datasets.find(lake, "small")
        with Gallery(gallery_file(lake, dataset)) as gallery:
            readable = next(each for each in plan_of(lake, dataset).image_checks if each.name == "readable")
            draw_sample(gallery, dataset, readable, 0.0)
