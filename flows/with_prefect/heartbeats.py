"""Runs whose process and worker were both killed: nobody says that they ended, so Prefect is told to notice."""

from datetime import timedelta

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture, ResourceSpecification

EVERY_SECONDS = 30
NAME = "pairmill: a run without a heartbeat has crashed"
MESSAGE = "Its process was gone: three heartbeats were missed. Run it again; what was finished is committed."


def watch(client: SyncPrefectClient) -> None:
    """Set up the automation, unless it is there: after three missed heartbeats a run that has not ended is crashed."""
    if client.read_automations_by_name(NAME):
        return
    ends = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
    trigger = EventTrigger(
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.heartbeat", *ends},
        match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=3 * EVERY_SECONDS),
    )
    action = ChangeFlowRunState(name="Crashed", state=StateType.CRASHED, message=MESSAGE, force=False)
    client.create_automation(AutomationCore(name=NAME, trigger=trigger, actions=[action]))
