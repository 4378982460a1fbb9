"""List the checks of `pairmill doctor`; each imports what it needs when it is called."""

from pairmill.flows.doctor.captioner_costs import captioner_costs
from pairmill.flows.doctor.credentials import credentials
from pairmill.flows.doctor.lake_state import lake_state
from pairmill.flows.doctor.packages import extras, packages, python_version
from pairmill.flows.doctor.server_state import server_state
from pairmill.flows.machine.gpu_state import gpus
from pairmill.flows.machine.recipe_models import recipe_models
from pairmill.flows.machine.space import disk, memory

EXAMINATIONS = {
    "python": python_version, "packages": packages, "extras": extras, "devices": gpus, "memory": memory, "disk": disk,
    "credentials": credentials, "lake": lake_state, "prefect": server_state, "models": recipe_models,
    "captioners": captioner_costs,  # the slowest: it loads them
}  # fmt: skip
