"""Tell Prefect when a run stalls, so that its automations can alert people."""

from prefect.events import emit_event

from pairmill.flows.with_prefect.alerts import STALLED
from pairmill.tasks.run.place.progress import Observer


class StallAlerts(Observer):
    """Emit STALLED, with the report of workers and items, whenever the watchdog ended workers of the current run."""

    def stalled(self, step: str, report: str) -> None:
        """Emit the event."""
        emit_event(STALLED, {"prefect.resource.id": f"pairmill.step.{step}"}, payload={"report": f"{step}: {report}"})
