"""Define the maintain flow that Prefect deploys and `pairmill up` schedules. Keep this module cheap to import."""

from pathlib import Path
from typing import Annotated

from prefect import flow, get_run_logger
from prefect.states import Completed, State
from pydantic import Field

from pairmill.flows.run.settings import default_lake
from pairmill.flows.with_prefect.deployments import ended_early
from pairmill.flows.with_prefect.run_names import name_run


@flow(name="maintain")
def maintain(
    lake: str = "",
    days: Annotated[int, Field(ge=1, le=3_650)] = 7,
    wait_minutes: Annotated[int, Field(ge=0, le=24 * 60)] = 60,
) -> State:
    """Merge a lake's small files, expire old snapshots, remove orphans and old caches, retry passing failures.

    Dataset versions and their rows stay. The run ends as Refused if another run writes to the lake all the time.

    Args:
        lake: The lake's folder or its lake.yaml; empty means the worker's PAIRMILL_LAKE, then lake/.
        days: DuckLake's snapshots of this many days are kept.
        wait_minutes: How long each step waits for a run that writes to the lake.
    """
    from pairmill.catalog.lake.opening import check_is_lake, create_or_open
    from pairmill.catalog.terms.controls import visible
    from pairmill.flows.maintain import Limits, maintain_steps

    said: list[str] = []
    try:
        place = lake or default_lake()
        name_run(f"maintain {Path(place).name}")
        if not Path(place).expanduser().exists():  # `pairmill up` schedules the maintenance before the first run
            return Completed(name="Skipped", message=f"there is no lake at '{place}' yet")
        check_is_lake(place)
        with create_or_open(place) as opened:
            for line in maintain_steps(opened, Limits(days=days, wait_seconds=60.0 * wait_minutes)):
                get_run_logger().info(visible(line))
                said.append(line)
    except Exception as error:
        return ended_early(error)
    return Completed(message="; ".join(said))
