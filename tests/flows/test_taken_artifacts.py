"""A takedown deletes the artifacts at Prefect's server that show a removed picture, its address or a removed text."""

import json
import re
from pathlib import Path

import pytest
from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.upkeep import taken_items
from pairmill.catalog.upkeep.taken_items import Subject
from pairmill.flows.command.cli import main
from pairmill.flows.run.outcome import outcome
from pairmill.flows.with_prefect.artifact_pictures import picture_gallery
from pairmill.flows.with_prefect.artifact_texts import plain
from pairmill.flows.with_prefect.artifacts import _markdown, create_artifacts
from pairmill.flows.with_prefect.taken_artifacts import remove_artifacts, taken_names
from tests.worlds.line import rows


def test_an_artifact_is_known_by_a_pictures_id_its_address_and_a_text_alone(curated_copy: Path) -> None:
    found = outcome(str(curated_copy), "demo")
    shown = found.samples[0]
    with create_or_open(curated_copy) as lake:
        ((sha256, document),) = lake.query(
            "SELECT sha256, document_id FROM pairs WHERE image_id = ?", (shown["image_id"],)
        )
        taken_items.select(lake, Subject(pictures=(sha256,), documents=(document,)))
        names = taken_names(lake)
        ((other,),) = lake.query("SELECT min(sha256) FROM images WHERE sha256 NOT IN (SELECT sha256 FROM pairs)")
        taken_items.select(lake, Subject(pictures=(other,)))
        unseen = taken_names(lake)
    pairs, gallery = _markdown(found), picture_gallery(found)
    assert names.are_in(pairs) and names.ids and names.said
    assert names.are_in(f"![{shown['image_id']}](data:image/webp;base64,AAAA)")
    assert not unseen.are_in(pairs) and not unseen.are_in("## another\n- **text1**: of another")
    ((text,),) = rows(curated_copy, f"SELECT any_value(text) FROM sentences WHERE document_id = '{document}' "
                      "AND content NOT IN (SELECT content FROM sentences GROUP BY content "
                      "HAVING count(DISTINCT document_id) > 1)")  # fmt: skip
    assert names.are_in(f"- **text2**: {plain(text)}") and "data:image" in gallery


def test_without_a_server_a_removal_says_that_artifacts_were_not_looked_for(
    curated_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_or_open(curated_copy) as lake:
        taken_items.select(lake, Subject(pictures=("0" * 32,)))
        names = taken_names(lake)
    with temporary_settings({PREFECT_HOME: tmp_path}, restore_defaults={PREFECT_API_URL}):
        assert remove_artifacts(names) == "artifacts: no Prefect server is known, so none was looked for"
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert "http://127.0.0.1:9/api does not answer" in remove_artifacts(names)


@pytest.mark.slow  # 30 s: a Prefect server, and a removal that rewrites most files
@pytest.mark.timeout(600)
def test_artifacts_of_removed_items_are_deleted_and_others_stay(
    prefect_api: str, curated_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = outcome(str(curated_copy), "demo")
    # A picture of each of the two artifacts: a gallery shows some of the kept pictures, and the sample others.
    shown = found.samples[0]["image_id"], re.findall(r"!\[([0-9a-f]{32})\]", picture_gallery(found))[0]
    documents = rows(curated_copy, f"SELECT DISTINCT document_id FROM images WHERE image_id IN {shown}")

    @flow
    def run() -> None:
        create_artifacts(found)
        create_markdown_artifact("# Another\n\n## of nobody", key="pairs-of-another-lake")

    with temporary_settings({PREFECT_API_URL: prefect_api}):
        run()
        before = _data()
        report = tmp_path / "removal.json"
        named = [part for (document,) in documents for part in ("--document", document)]
        command = ["takedown", *named, "--yes", "--report", str(report)]
        assert main([*command, "--lake", str(curated_copy)]) == 0
        left = _data()
    said = json.loads(report.read_text())["artifacts"]
    assert said.endswith(f"removed at Prefect's server {prefect_api}") and said in capsys.readouterr().out
    assert {"pairs-demo", "pictures-demo"} <= set(before) - set(left)
    assert {"pairs-of-another-lake", "funnel-demo"} <= set(left)


def _data() -> dict[str, object]:
    """Return the data of the server's artifacts by key."""
    with get_client(sync_client=True) as client:
        return {each.key: each.data for each in client.read_artifacts(limit=200) if each.key}
