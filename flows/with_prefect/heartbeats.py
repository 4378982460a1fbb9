"""Make Prefect mark a run as crashed if its process and the serving one were killed, so that neither can report it."""

from datetime import timedelta

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture, ResourceSpecification

EVERY_SECONDS = 30
TAG = "pairmill"  # tag of every deployment in prefect.yaml; its runs inherit it
NAME = "pairmill: a run without a heartbeat has crashed"
MESSAGE = "Its process was gone: three heartbeats were missed. Run it again; what was finished is committed."


def watch(client: SyncPrefectClient) -> None:
    """Create or update the automation that marks a run as crashed after three missed heartbeats.

    It covers unfinished runs of deployments with our tag; other runs on a shared server are left alone.
    """
    wanted = _automation()
    found = client.read_automations_by_name(NAME)
    if not found:
        client.create_automation(wanted)
    for each in found:
        if getattr(each.trigger, "match_related", None) != getattr(wanted.trigger, "match_related", None):
            client.update_automation(each.id, wanted.model_copy(update={"enabled": each.enabled}))


def _automation() -> AutomationCore:
    """Build the automation."""
    ends = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
    trigger = EventTrigger(
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.heartbeat", *ends},
        match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
        match_related=ResourceSpecification({"prefect.resource.id": [f"prefect.tag.{TAG}"]}),
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=3 * EVERY_SECONDS),
    )
    action = ChangeFlowRunState(name="Crashed", state=StateType.CRASHED, message=MESSAGE, force=False)
    return AutomationCore(name=NAME, trigger=trigger, actions=[action])
