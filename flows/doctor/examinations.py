"""List the checks of `pairmill doctor`, and run them: an error of one is a finding, and the others still run."""

from collections.abc import Iterator

from pairmill.flows.doctor.captioner_costs import captioner_costs
from pairmill.flows.doctor.credentials import credentials
from pairmill.flows.doctor.lake_state import lake_state
from pairmill.flows.doctor.packages import extras, packages, python_version
from pairmill.flows.doctor.server_state import server_state
from pairmill.flows.machine.finding import Examination, Finding, Patient
from pairmill.flows.machine.recipe_models import recipe_models
from pairmill.flows.machine.space import disk, memory
from pairmill.flows.machine.torch_devices import devices
from pairmill.flows.user_error import user_message

EXAMINATIONS = (
    Examination("python", python_version),
    Examination("packages", packages),
    Examination("extras", extras),
    Examination("devices", devices),
    Examination("memory", memory),
    Examination("disk", disk),
    Examination("credentials", credentials),
    Examination("lake", lake_state),
    Examination("prefect", server_state),
    Examination("models", recipe_models),
    Examination("captioners", captioner_costs),  # the slowest: it loads them
)


def examine(patient: Patient) -> Iterator[tuple[str, Finding]]:
    """Yield the name of each check with each of its findings."""
    for each in EXAMINATIONS:
        try:
            for finding in each.examine(patient):
                yield each.name, finding
        except Exception as error:
            yield each.name, Finding("fail", user_message(error) or f"{type(error).__name__}: {error}")
