"""`pairmill quarantine` and `run --retry`, as a person uses them after a run over a list of addresses."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.flows.command.cli import main
from tests.worlds.commands import Tell
from tests.worlds.generated import PICTURES_ALONE
from tests.worlds.line import rows
from tests.worlds.web import Web, photograph, picture, status, web

LOOPBACK = "--allow-address=127.0.0.1/32"


@pytest.fixture
def server() -> Iterator[Web]:
    with web() as running:
        for n in range(24):
            running.manners[f"/{n}.jpg"] = picture(photograph(n, 160))
        for n in (3, 4):
            running.manners[f"/{n}.jpg"] = status(503)
        running.manners["/5.jpg"] = status(404)
        yield running


@pytest.fixture
def source(server: Web, tmp_path: Path) -> str:
    (tmp_path / "list").mkdir()
    urls = [server.url(f"/{n}.jpg") for n in range(24)]
    captions = [f"A noisy picture that bears the number {n} and nothing else." for n in range(24)]
    pq.write_table(pa.table({"url": urls, "caption": captions}), tmp_path / "list/list.parquet")
    return str(tmp_path / "list")


@pytest.mark.slow
def test_what_could_not_be_fetched_is_told_tried_again_and_joins_the_dataset(
    tell: Tell, server: Web, source: str, settings: dict[str, str], tmp_path: Path
):
    lake = ("--lake", str(tmp_path / "lake"))
    recipe = {**settings, **PICTURES_ALONE, "captioners": "[]", "images": "[]", "fetch.retries": "0"}
    told = tell("run", "demo", "--source", source, *lake, LOOPBACK, *(f"--set={k}={v}" for k, v in recipe.items()))
    assert "demo@1  21 pairs" in told

    told = tell("quarantine", *lake, "--format", "csv").splitlines()
    assert told[0] == "reason,stage,source,items,example,detail"
    assert sorted(line.split(",")[:4] for line in told[1:]) == [["http_status", "fetch", source, "3"]]

    told = tell("why", server.url("/3.jpg"), *lake)
    assert "http_status: HTTP 503" in told and "--retry http_status" in told and "named by 1 documents" in told
    assert "--retry" not in tell("why", server.url("/5.jpg"), *lake)
    assert "fetched   HTTP 200, 1 attempts" in tell("why", server.url("/6.jpg"), *lake)

    for n in (3, 4):
        server.manners[f"/{n}.jpg"] = picture(photograph(n, 160))
    told = tell(
        "run", "demo", "--retry", "http_status", *lake, LOOPBACK, *(f"--set={k}={v}" for k, v in recipe.items())
    )
    assert "demo@2  23 pairs" in told
    assert "retried 'http_status': 3 items were in quarantine for it, 1 are now" in told
    assert rows(lake[1], "SELECT item FROM quarantine") == [(server.url("/5.jpg"),)]
    assert {path: n for path, n in server.asked.items() if n > 1} == {"/3.jpg": 2, "/4.jpg": 2, "/5.jpg": 2}
    unset = {key: value for key, value in recipe.items() if key != "fetch.retries"}
    told = tell("run", "demo", "--retry", "http_status", *lake, LOOPBACK, *(f"--set={k}={v}" for k, v in unset.items()))
    assert "unchanged" in told and server.asked["/5.jpg"] == 3, "a retry fetches also by a recipe without `fetch`"


@pytest.mark.slow
def test_a_lake_whose_addresses_are_not_fetched_has_no_pairs_and_no_version_unless_that_is_allowed(
    tell: Tell, server: Web, source: str, settings: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    asked = ["run", "demo", "--source", source, "--lake", str(tmp_path / "lake"),
             *(f"--set={key}={value}" for key, value in (settings | PICTURES_ALONE).items())]  # fmt: skip
    assert main(asked) == 3
    refused = capsys.readouterr().err
    assert "no pair is left, so no version of demo is published, since there is no picture" in refused
    assert "24 addresses of pictures are not fetched" in refused and len(refused.splitlines()) == 1
    assert rows(tmp_path / "lake", "SELECT 1 FROM datasets") == []
    told = tell(*asked, "--allow-empty")
    assert "not fetched yet" in tell("why", server.url("/1.jpg"), "--lake", str(tmp_path / "lake"))
    assert "demo@1  0 pairs" in told and "24 addresses of pictures are not fetched" in told
    assert not server.asked


def test_a_lake_that_is_not_there_is_not_made(tmp_path: Path, settings: dict[str, str], capsys):
    assignments = [f"--set={key}={value}" for key, value in settings.items()]
    assert main(["run", "demo", "--retry", "poison", "--lake", str(tmp_path / "lake"), *assignments]) == 1
    assert "there is no lake" in capsys.readouterr().err and not (tmp_path / "lake").exists()


@pytest.mark.slow
def test_an_allowed_network_has_its_blocked_addresses_fetched(
    tell: Tell, server: Web, source: str, settings: dict[str, str], tmp_path: Path
):
    lake = ("--lake", str(tmp_path / "lake"))
    recipe = {**settings, **PICTURES_ALONE, "fetch.retries": "0"}
    assignments = ["--allow-empty", *(f"--set={k}={v}" for k, v in recipe.items())]
    tell("run", "demo", "--source", source, *lake, *assignments)
    told = tell("quarantine", *lake, "--format", "csv")
    assert not server.asked and "run RECIPE --retry blocked_address --allow-address" in told
    tell("run", "demo", "--retry", "blocked_address", *lake, LOOPBACK, *assignments)
    assert rows(lake[1], "SELECT count(*) FROM images") == [(21,)]
    assert "blocked_address" not in tell("quarantine", *lake, "--format", "csv")
