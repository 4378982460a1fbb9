"""`pairmill schedule` on a real Prefect server: set, set again, changed, listed, removed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.utilities.callables import parameter_schema

from pairmill.flows.command.cli import main
from pairmill.flows.with_prefect.deployments import curate


@pytest.fixture
def client(prefect_api: str) -> Iterator[SyncPrefectClient]:
    """A client of the server, which has the deployments curate/30m and curate/demo without a schedule."""
    form = parameter_schema(curate.fn).model_dump_for_openapi()
    with temporary_settings({PREFECT_API_URL: prefect_api}), SyncPrefectClient(prefect_api) as client:
        flow = client.create_flow_from_name("curate")
        made = [
            client.create_deployment(flow, name, parameters={"recipe": name}, parameter_openapi_schema=form,
                                     enforce_parameter_schema=True)
            for name in ("30m", "demo")
        ]  # fmt: skip
        yield client
        for each in made:
            client.delete_deployment(each)


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages").mkdir()
    return tmp_path / "pages"


def schedules(client: SyncPrefectClient) -> list[DeploymentSchedule]:
    return client.read_deployment_schedules(client.read_deployment_by_name("curate/30m").id)


@pytest.mark.slow
def test_a_schedule_is_set_once_changed_in_place_and_removed(client, pages: Path, tell):
    daily = ("schedule", "30m", "--every", "day", "--source", "pages", "--lake", "own", "--set", "balance.cap=50")
    where = f"{pages} into {pages.parent / 'own'}, balance.cap=50"
    assert tell(*daily, "--at", "03:15") == f"curate/30m: every day at 03:15 UTC, {where} (new)\n"
    (made,) = schedules(client)
    assert (made.schedule.cron, made.schedule.timezone, made.active) == ("15 3 * * *", "UTC", True)
    assert made.parameters == {"sources": [str(pages)], "lake": str(pages.parent / "own"),
                               "overrides": {"balance.cap": "50"}}  # fmt: skip
    assert "(unchanged)" in tell(*daily, "--at", "3:15") and schedules(client) == [made]
    assert "every day at 02:00 UTC" in (changed := tell(*daily)) and "(changed)" in changed
    assert [(each.id, each.schedule.cron) for each in schedules(client)] == [(made.id, "0 2 * * *")]
    assert tell("schedule") == f"curate/30m: every day at 02:00 UTC, {where}\n"
    gone = ("schedule", "30m", "--off", "--lake", "own")
    assert "schedule removed" in tell(*gone) and "there was no schedule" in tell(*gone)
    assert schedules(client) == [] and "no schedule yet" in tell("schedule")


@pytest.mark.slow
def test_each_lake_has_its_own_and_those_of_the_interface_are_listed_and_left_alone(client, pages: Path, tell):
    deployment = client.read_deployment_by_name("curate/30m").id
    client.create_deployment_schedules(deployment, [(IntervalSchedule(interval=3600), False)])  # pyright: ignore
    tell("schedule", "30m", "--every", "week", "--source", "pages", "--lake", "one")
    tell("schedule", "30m", "--every", "hour", "--at", "00:30", "--source", "pages", "--lake", "two")
    told = sorted(tell("schedule").splitlines())
    assert [line.partition(",")[0] for line in told] == [
        "curate/30m: every 1:00:00 (paused)",
        "curate/30m: every Saturday at 02:00 UTC",
        "curate/30m: every hour at minute 30",
    ]
    tell("schedule", "30m", "--off", "--lake", "one")
    assert len(schedules(client)) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["30m"], "say --every hour, day or week"),
        (["30m", "--every", "day", "--off"], "say --every hour, day or week"),
        (["30n", "--every", "day"], "did you mean '30m'?"),
        (["30m", "--every", "day"], "names no source; give one: --source"),
        (["30m", "--every", "day", "--source", "pagse"], "there is no such file or folder"),
        (["30m", "--every", "day", "--source", "ftp://host/x"], "'ftp://' is not read; give a local path"),
        (["30m", "--every", "day", "--source", "https://host/list?key=1"], "Prefect stores a run's parameters"),
        (["30m", "--every", "day", "--source", "pages", "--set", "balance.capp=3"], "did you mean 'cap'?"),
        (["30m", "--every", "hour", "--at", "03:00", "--source", "pages"], "takes a minute alone"),
        (["--every", "day", "--source", "pages"], "name the recipe of the schedule"),
    ],
)
def test_what_cannot_be_scheduled_is_told_in_a_line(pages: Path, arguments: list[str], said: str, capsys):
    assert main(["schedule", *arguments]) == 1
    assert said in (told := capsys.readouterr().err) and told.count("\n") == 1


@pytest.mark.slow
def test_a_deployment_that_the_server_lacks_is_told(client, pages: Path, capsys):
    assert main(["schedule", "15m", "--every", "day", "--source", "pages"]) == 1
    assert "the Prefect server has no deployment 'curate/15m'; `pairmill up` makes it" in capsys.readouterr().err


def test_without_a_server_the_remedy_is_told(capsys):
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert main(["schedule"]) == 1
    assert "no Prefect server answers at http://127.0.0.1:9/api; start one by `pairmill up`" in capsys.readouterr().err


@pytest.mark.parametrize("at", ["3", "24:00", "03:60", "3:x", "-1:00"])
def test_a_time_that_is_none_is_refused(at: str, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["schedule", "30m", "--every", "day", f"--at={at}"])
    assert ended.value.code == 2 and f"'{at}' is no time" in capsys.readouterr().err
