"""Have Prefect mark runs as crashed when their process and worker were both killed and nobody reports it."""

from datetime import timedelta

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture, ResourceSpecification

EVERY_SECONDS = 30
NAME = "pairmill: a run without a heartbeat has crashed"
MESSAGE = "Its process was gone: three heartbeats were missed. Run it again; what was finished is committed."


def watch(client: SyncPrefectClient) -> None:
    """Create the automation, unless it exists: three missed heartbeats turn a run that has not ended into crashed."""
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
