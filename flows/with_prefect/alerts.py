"""Make Prefect send alerts about our runs through a block of its user: a webhook, Slack, mail and others.

Whoever wants alerts creates a block named BLOCK in Prefect's interface, of any type that sends notifications. A run
that was refused, and one that a person cancelled, alarm nobody. Prefect's own events carry what is needed, but for the
share of quarantined items and for stalls, for which the run emits QUARANTINED and STALLED.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.events.actions import CallWebhook, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture, ResourceSpecification

from pairmill.flows.with_prefect.heartbeats import TAG

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


def install(client: SyncPrefectClient) -> list[str]:
    """Create or update one automation for each of ALERTS if the server has the block; return their new names.

    Automations that the user switched off stay off. Without the block nothing is created.
    """
    block = _block(client)
    if block is None:
        return []
    new = []
    for about, (event, sentence) in ALERTS.items():
        wanted = _automation(about, event, sentence, block)
        found = client.read_automations_by_name(wanted.name)
        if not found:
            client.create_automation(wanted)
            new.append(wanted.name)
        for each in found:
            if each.actions != wanted.actions:
                client.update_automation(each.id, wanted.model_copy(update={"enabled": each.enabled}))
    return new


def report_quarantine(share: float, most: float, dataset: str) -> None:
    """Emit QUARANTINED if ``share`` of what the current run read is in quarantine, and only ``most`` may be."""
    if share > most:
        from prefect.events import emit_event

        about = {"prefect.resource.id": f"pairmill.dataset.{dataset}"}
        emit_event(QUARANTINED, about, payload={"share": round(share, 4), "most": most})


def _block(client: SyncPrefectClient) -> Any:
    """Return the user's block named BLOCK, None if there is none."""
    return next((each for each in client.read_block_documents(limit=200) if each.name == BLOCK), None)


def _automation(about: str, event: str, sentence: str, block: Any) -> AutomationCore:
    """Build the automation that sends one alert for each run with our tag."""
    if block.block_type.slug == WEBHOOK:
        fixed = f'"alert": {json.dumps(about)}, "text": {json.dumps(sentence)}'
        action: Any = CallWebhook(block_document_id=block.id, payload=f"{{{fixed}, {_OF_RUN}}}")
    else:
        action = SendNotification(
            block_document_id=block.id,
            subject=f"pairmill: {{{{ flow_run.name }}}} {about}",
            body=f"{sentence}\n{{{{ event.payload.report }}}}{{{{ flow_run.state.message }}}}\n"
            "{{ flow_run|ui_url }}",
        )
    trigger = EventTrigger(
        expect={event},
        match_related=ResourceSpecification({"prefect.resource.id": [f"prefect.tag.{TAG}"]}),
        posture=Posture.Reactive,
        threshold=1,
        within=timedelta(0),
    )
    return AutomationCore(name=f"pairmill: a run {about}", trigger=trigger, actions=[action])
