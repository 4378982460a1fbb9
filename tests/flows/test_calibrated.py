"""A number set by a share stands in what is published, printed, reported and explained, and an old version keeps it."""

import json
import shutil
from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.eligible import image_rows, sentence_rows
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.terms.score import Stage
from tests.worlds.commands import Tell
from tests.worlds.line import rows

IMAGES = (
    "[{name: side, keep: 'least(width, height) >= 40'}, "
    "{name: dull, keep: 'sharpness >= {threshold}', calibrate: {drop: 0.2}}]"
)
# Without generated texts, of which neither rule reads any.
NO_TEXTS = {"captioners": "[]", "tags": "null", "fuse": "null"}
SENTENCES = "[{name: words, keep: 'n_words <= {threshold}', calibrate: {drop: 0.25}}]"


def falls(lake: Path, version: int) -> dict[str, tuple[int, int]]:
    """Images and sentences that came to each calibrated rule, and those that fell, counted anew by the record."""
    found = {}
    with create_or_open(lake, read_only=True) as opened:
        dataset = find(opened, f"demo@{version}")
        plan = plan_of(opened, dataset)
        of_images = image_rows(plan, Stage.CAPTION, dataset.commit)
        of_sentences = sentence_rows(plan, Stage.CAPTION, dataset.commit)
        for rule, sql, earlier in (("dull", of_images, ("side", "readable")), ("words", of_sentences, ())):
            counts = dict(opened.query(f"SELECT dropped_by, count(*) FROM ({sql}) GROUP BY ALL"))
            n = sum(counts.values()) - sum(counts.get(name, 0) for name in earlier)
            found[rule] = (n, counts.get(rule, 0))
    return found


def funnel(lake: Path, version: int) -> dict[str, tuple[int, int]]:
    sql = f"SELECT rule, n_in, n_dropped FROM funnel WHERE version = {version} AND rule IN ('dull', 'words')"
    return {rule: (n_in, n_dropped) for rule, n_in, n_dropped in rows(lake, sql)}


def numbers(lake: Path, version: int) -> dict[str, float]:
    ((recipe,),) = rows(lake, f"SELECT recipe FROM datasets WHERE version = {version}")
    rules = json.loads(recipe)["images"] + json.loads(recipe)["sentences"]
    return {rule["name"]: rule["calibrate"]["threshold"] for rule in rules if "calibrate" in rule}


@pytest.mark.slow
def test_a_version_has_its_numbers_on_record_and_a_later_one_the_same(
    tell: Tell, tmp_path: Path, pages: Path, more_pages: Path, settings: dict[str, str]
):
    lake, source = tmp_path / "lake", shutil.copytree(pages, tmp_path / "pages")
    asked = settings | NO_TEXTS | {"images": IMAGES, "sentences": SENTENCES}
    command = ["run", "demo", "--source", str(source), "--lake", str(lake)]
    command += [f"--set={key}={value}" for key, value in asked.items()]
    told = tell(*command)
    first = numbers(lake, 1)
    assert dict(rows(lake, "SELECT kind, threshold FROM thresholds")) == {
        "image": first["dull"], "sentence": first["words"]}  # fmt: skip
    for name, (n, dropped) in funnel(lake, 1).items():
        share = {"dull": 0.2, "words": 0.25}[name]
        assert 0 < dropped <= share * n, name
        assert f"the rule '{name}' was set: " in told
    assert f"rule    words: n_words <= {first['words']!r} -- calibrate: {{drop: 0.25}}" in told
    assert falls(lake, 1) == funnel(lake, 1)

    again = tell(*command)
    assert "unchanged" in again and "was set" not in again and "rule    dull: sharpness >= " in again
    report = Path(next(line for line in told.splitlines() if line.startswith("report")).split()[1])
    assert f"n_words &lt;= {first['words']!r} -- calibrate: {{drop: 0.25}}" in report.read_text()
    ((fallen,),) = rows(lake, "SELECT item_id FROM decisions WHERE dropped_by = 'dull' ORDER BY 1 LIMIT 1")
    assert "-- calibrate: {drop: 0.2}" in tell("why", fallen, "--lake", str(lake))

    shutil.copytree(more_pages, source / "more")
    assert "was set" not in tell(*command)
    assert numbers(lake, 2) == first
    assert falls(lake, 2) == funnel(lake, 2) != funnel(lake, 1)
    assert falls(lake, 1) == funnel(lake, 1)
