"""List the checks of `pairmill doctor`, in order; each imports its modules when it is called."""

from collections.abc import Iterator
from pathlib import Path

from pairmill.flows.doctor.captioner_costs import captioner_costs
from pairmill.flows.doctor.installation import credentials, extras, packages, python_version, server_state
from pairmill.flows.machine.finding import Finding, Patient
from pairmill.flows.machine.gpu_state import gpus
from pairmill.flows.machine.recipe_models import recipe_models
from pairmill.flows.machine.space import disk, memory


def lake_state(patient: Patient) -> Iterator[Finding]:
    """Open the lake for reading; yield findings on its format, its catalog's seal, and its writing process."""
    from pairmill.catalog.lake import schema, seal
    from pairmill.catalog.lake.lease_row import holder_of
    from pairmill.catalog.lake.location import locate
    from pairmill.catalog.lake.new_lake import check_new_place
    from pairmill.catalog.lake.opening import create_or_open
    from pairmill.flows.api.opened_lake import OpenLake

    location = locate(patient.lake)
    if not location.on_postgres and not Path(location.metadata).is_file():
        check_new_place(location)
        yield Finding("ok", f"none at '{patient.lake}' yet; the first run makes it")
        return
    with create_or_open(patient.lake, read_only=True) as lake:
        version, holder = schema.version(lake), holder_of(lake.metadata)
        images = OpenLake(lake).status().rows["images"]
        yield Finding("ok", f"'{patient.lake}' opens: {images:,} images")
    what = f"format {version.format}, schema {version.migrations}"
    if version.migrations == schema.NEWEST:
        yield Finding("ok", f"{what}, the newest")
    else:
        yield Finding("warn", f"{what} of {schema.NEWEST}", "the next run migrates it; copy the lake before")
    if not location.on_postgres:
        if seal.is_sealed(location):
            yield Finding("ok", "its catalog is sealed and as it was last written")
        elif holder is None or holder.is_dead():
            yield Finding("warn", "its catalog has no seal: the last run was killed", "the next run seals it")
    if holder is None:
        yield Finding("ok", "nobody writes to it")
    elif holder.is_dead():
        yield Finding("ok", f"its writer has died ({holder}); the next run takes over")
    else:
        yield Finding("ok", f"is written by {holder}; a second run waits for it")


EXAMINATIONS = {
    "python": python_version, "packages": packages, "extras": extras, "devices": gpus, "memory": memory, "disk": disk,
    "credentials": credentials, "lake": lake_state, "prefect": server_state, "models": recipe_models,
    "captioners": captioner_costs,  # the slowest: it loads them
}  # fmt: skip
