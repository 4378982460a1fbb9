"""Install Prefect automations for Pairmill's runs: alerts, and marking a run whose process is gone as crashed.

To receive alerts, create a block named BLOCK in Prefect's interface, of any type that sends notifications: a webhook,
Slack, mail and others. Refused and cancelled runs send none. Prefect's own events start the alerts, except those on the
share of quarantined items and on stalls, for which the run emits QUARANTINED and STALLED. Other projects' runs on a
shared server start none.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events import emit_event
from prefect.events.actions import CallWebhook, ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture, ResourceSpecification

from pairmill.tasks.run.place.progress import Observer

TAG = "pairmill"  # tag of every deployment in prefect.yaml; its runs inherit it
OURS = ResourceSpecification({"prefect.resource.id": [f"prefect.tag.{TAG}"]})
HEARTBEAT_SECONDS = 30
NO_HEARTBEAT = "pairmill: a run without a heartbeat has crashed"
GONE = "Its process was gone: three heartbeats were missed. Run it again; what was finished is committed."
BLOCK = "pairmill-alerts"
WEBHOOK = "webhook"
QUARANTINED, STALLED = "pairmill.run.quarantined", "pairmill.run.stalled"
# What each alert is about: the event, then the sentence. "Stopped" is the state of a run at a limit of its budget.
ALERTS: Mapping[str, tuple[str, str]] = {
    "crashed": ("prefect.flow-run.Crashed", "its process is gone; run it again, what was finished is committed"),
    "failed": ("prefect.flow-run.Failed", "it failed; its message says what to mend"),
    "at a limit": ("prefect.flow-run.Stopped", "it reached a limit of its budget; run it again to go on"),
    "stalled": (STALLED, "it finished nothing for a long time; what hung was ended, and it goes on"),
    "quarantined much": (QUARANTINED, "more of what it read is in quarantine than it may be"),
}
# Filled in by Prefect, as JSON.
_OF_RUN = (
    '"run": {{ flow_run.name|tojson }}, "id": {{ flow_run.id|string|tojson }}, "url": {{ flow_run|ui_url|tojson }}, '
    '"message": {{ (flow_run.state.message or "")|tojson }}, "report": {{ (event.payload.report or "")|tojson }}'
)


def install_alerts(client: SyncPrefectClient) -> list[str]:
    """Create or update one Prefect automation per alert, if the server has the notification block BLOCK.

    Returns the names of the new automations.
    """
    block = next((each for each in client.read_block_documents(limit=200) if each.name == BLOCK), None)
    wanted = [_alert(about, *sent, block) for about, sent in ALERTS.items()] if block else []
    return [each.name for each in wanted if _install(client, each)]


def watch_heartbeats(client: SyncPrefectClient) -> None:
    """Create or update the automation that marks an unfinished run as crashed after three missed heartbeats.

    It covers runs whose own process and whose serving process were both killed, so that neither reports the crash.
    """
    ends = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
    trigger = EventTrigger(
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.heartbeat", *ends},
        match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
        match_related=OURS,
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=3 * HEARTBEAT_SECONDS),
    )
    action = ChangeFlowRunState(name="Crashed", state=StateType.CRASHED, message=GONE, force=False)
    _install(client, AutomationCore(name=NO_HEARTBEAT, trigger=trigger, actions=[action]))


class StallAlerts(Observer):
    """Observer that emits the Prefect event STALLED whenever the watchdog has ended workers of the current run."""

    def stalled(self, step: str, report: str) -> None:
        """Emit STALLED for ``step``, with the ``report`` on its workers and items."""
        emit_event(STALLED, {"prefect.resource.id": f"pairmill.step.{step}"}, payload={"report": f"{step}: {report}"})


def report_quarantine(share: float, most: float, dataset: str) -> None:
    """Emit the Prefect event QUARANTINED if the quarantined ``share`` of the run's items exceeds ``most``."""
    if share > most:
        about = {"prefect.resource.id": f"pairmill.dataset.{dataset}"}
        emit_event(QUARANTINED, about, payload={"share": round(share, 4), "most": most})


def _install(client: SyncPrefectClient, wanted: AutomationCore) -> bool:
    """Create an automation, and return whether it is new; else update it. One that is switched off stays off."""
    found = client.read_automations_by_name(wanted.name)
    if not found:
        client.create_automation(wanted)
    for each in found:
        is_same_trigger = getattr(each.trigger, "match_related", None) == getattr(wanted.trigger, "match_related", None)
        if not is_same_trigger or each.actions != wanted.actions:
            client.update_automation(each.id, wanted.model_copy(update={"enabled": each.enabled}))
    return not found


def _alert(about: str, event: str, sentence: str, block: Any) -> AutomationCore:
    """Build the automation that sends one alert for each run with our tag."""
    if block.block_type.slug == WEBHOOK:
        fixed = f'"alert": {json.dumps(about)}, "text": {json.dumps(sentence)}'
        action: Any = CallWebhook(block_document_id=block.id, payload=f"{{{fixed}, {_OF_RUN}}}")
    else:
        subject = f"pairmill: {{{{ flow_run.name }}}} {about}"
        body = f"{sentence}\n{{{{ event.payload.report }}}}{{{{ flow_run.state.message }}}}\n{{{{ flow_run|ui_url }}}}"
        action = SendNotification(block_document_id=block.id, subject=subject, body=body)
    trigger = EventTrigger(
        expect={event}, match_related=OURS, posture=Posture.Reactive, threshold=1, within=timedelta(0)
    )
    return AutomationCore(name=f"pairmill: a run {about}", trigger=trigger, actions=[action])
