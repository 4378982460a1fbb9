"""Set, list and remove the schedules of curate's deployments on a Prefect server."""

import hashlib
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.terms.error import PairmillError

TIMEZONE = "UTC"
EVERY = {"hour": "{minute} * * * *", "day": "{minute} {hour} * * *", "week": "{minute} {hour} * * 6"}  # on Saturdays
TEXTS = {"hour": "every hour at minute {minute:02}", "day": "every day at {hour:02}:{minute:02} UTC",
         "week": "every Saturday at {hour:02}:{minute:02} UTC"}  # fmt: skip


@dataclass(frozen=True)
class Timetable:
    """When a schedule starts runs: every ``every``, a key of EVERY, at ``hour`` and ``minute`` UTC."""

    every: str
    hour: int
    minute: int

    @property
    def cron(self) -> str:
        """The cron expression."""
        return EVERY[self.every].format(hour=self.hour, minute=self.minute)

    def __str__(self) -> str:
        return TEXTS[self.every].format(hour=self.hour, minute=self.minute)


MAINTENANCE = "maintain/nightly"
NIGHTLY = Timetable("day", 4, 30)


@dataclass(frozen=True)
class ScheduleRow:
    """A schedule as listed: its deployment, when it starts runs, the parameters of the runs, whether it is active."""

    deployment: str
    when: str
    parameters: dict[str, Any]
    is_active: bool


def set_schedule(client, deployment: str, timetable: Timetable, parameters: dict[str, Any]) -> str:
    """Create the schedule of a deployment and a lake, or change it; return 'new', 'changed' or 'unchanged'.

    The server does not check the parameters. Raises PairmillError if it lacks the deployment.
    """
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import CronSchedule

    found, slug = _read(client, deployment), _slug(parameters["lake"])
    schedule = CronSchedule(cron=timetable.cron, timezone=TIMEZONE)
    before = next((each for each in found.schedules if each.slug == slug), None)
    if before is None:
        new = DeploymentScheduleCreate(schedule=schedule, active=True, parameters=parameters, slug=slug)
        client.create_deployment_schedules(found.id, [new])
        return "new"
    if before.active and before.schedule == schedule and before.parameters == parameters:
        return "unchanged"
    client.update_deployment_schedule(found.id, before.id, active=True, schedule=schedule, parameters=parameters)
    return "changed"


def maintain_nightly(client, lake: str) -> str:
    """Schedule the maintenance of a lake for NIGHTLY; return a line, '' if it has a schedule, also a paused one."""
    found = _read(client, MAINTENANCE)
    if any(each.slug == _slug(lake) for each in found.schedules):
        return ""
    set_schedule(client, MAINTENANCE, NIGHTLY, {"lake": lake})
    return f"scheduled {MAINTENANCE} of {lake}: {NIGHTLY}"


def remove_schedule(client, deployment: str, lake: str) -> bool:
    """Remove the schedule of a deployment and a lake, and its future runs; return whether there was one."""
    found = _read(client, deployment)
    ours = [each for each in found.schedules if each.slug == _slug(lake)]
    for each in ours:
        client.delete_deployment_schedule(found.id, each.id)
    return bool(ours)


def list_schedules(client, names: list[str]) -> list[ScheduleRow]:
    """List the schedules of these deployments, also those that were made in Prefect's interface."""
    from prefect.exceptions import ObjectNotFound

    rows = []
    for name in names:
        try:
            found = client.read_deployment_by_name(name)
        except ObjectNotFound:
            continue
        for each in found.schedules:
            rows.append(ScheduleRow(name, _when(each.schedule), found.parameters | each.parameters, each.active))
    return rows


def _read(client, deployment: str) -> Any:
    """Return a deployment of the server. Raises PairmillError if the server lacks it."""
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(deployment)
    except ObjectNotFound:
        raise PairmillError(
            f"the Prefect server has no deployment '{deployment}'; `pairmill up` makes it, also on a server that "
            "PREFECT_API_URL names."
        ) from None


def _when(schedule: Any) -> str:
    """Format a schedule: as its `Timetable` if it is one of ours, else its own expression."""
    cron = getattr(schedule, "cron", None)
    if cron is None:
        return f"every {schedule.interval}" if getattr(schedule, "interval", None) else str(schedule.rrule)
    minute, hour, *_ = cron.split()
    hour = hour if hour.isdigit() else "0"
    for every, form in EVERY.items():
        is_ours = minute.isdigit() and schedule.timezone == TIMEZONE
        if is_ours and form.format(minute=minute, hour=hour) == cron:
            return str(Timetable(every, int(hour), int(minute)))
    return f"cron '{cron}' {schedule.timezone or TIMEZONE}"


def _slug(lake: str) -> str:
    """Return the name of a lake's schedule within a deployment: a deployment has at most one for each lake."""
    return f"pairmill-{hashlib.sha256(lake.encode()).hexdigest()[:12]}"
