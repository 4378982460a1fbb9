"""Define the Prefect flows `export`, `check` and `maintain`. Keep this module cheap to import."""

from pathlib import Path
from typing import Annotated, Literal

from prefect import flow, get_run_logger
from prefect.states import Completed, Failed, State
from pydantic import Field

from pairmill.flows.run.settings import default_lake
from pairmill.flows.with_prefect.deployments import ended_early
from pairmill.flows.with_prefect.run_names import name_by_result, name_run

DatasetName = Annotated[str, Field(pattern=r"^[^@\s]+(@\S+)?$", examples=["demo", "demo@3", "demo@release-1"])]
Place = Annotated[str, Field(pattern=r"^(s3://.+|[^:]+)$", examples=["s3://bucket/prefix", "/data/out"])]
Minutes = Annotated[int, Field(ge=0, le=24 * 60)]


@flow(name="export")
def export(
    dataset: DatasetName,
    to: Place,
    lake: str = "",
    format: Literal["webdataset", "parquet", "texts"] = "webdataset",
    captions: Literal["chosen", "all"] = "chosen",
    text: Annotated[str, Field(min_length=1)] = "text1",
    grow: bool = False,
    wait_minutes: Minutes = 60,
) -> State:
    """Export a dataset version as tars or Parquet. Files that are finished are not written again.

    Args:
        dataset: A dataset of the lake, its newest version unless a version or a tag follows: demo, demo@3.
        to: A new folder or s3://bucket/prefix.
        lake: The lake's folder or its lake.yaml; empty means the worker's PAIRMILL_LAKE, then lake/.
        format: webdataset is tars of picture, text and JSON; parquet is tables with the pictures; texts is the same
            tables without.
        captions: Advanced. 'all' adds a column with every captioner's text.
        text: Advanced. A tar's .txt: a column such as text1, or by chance: random(text1..text3, syn_text * 2).
        grow: Advanced. Use one folder for all versions of the recipe: rows of a later version go into further files.
        wait_minutes: Advanced. How long to wait for a run that writes to the lake.
    """
    from pairmill.catalog.lake.opening import open_as_allowed
    from pairmill.catalog.terms.controls import visible
    from pairmill.flows.api.opened_lake import OpenLake
    from pairmill.flows.with_prefect.artifacts import ProgressArtifacts
    from pairmill.tasks.release.export.export import export as write
    from pairmill.tasks.run.place.progress import Progress

    try:
        name_run(f"export {dataset}")
        with open_as_allowed(lake or default_lake()) as opened:
            found, bars = OpenLake(opened).dataset(dataset).version, ProgressArtifacts()

            def show(done: int, total: int) -> None:
                bars(Progress(f"export {found}", done, total, "pairs"))

            waits = 60.0 * wait_minutes
            made = write(opened, found.name, found.version, to, format, waits, show, captions, text, grow=grow)
        name_by_result(f"export {dataset}", f"export {found}")
        for note in made.notes:
            get_run_logger().warning(visible(note))
        size = f"{made.rows:,} pairs in {made.files:,} files, {made.bytes / 1e6:,.1f} MB"
        return Completed(message=visible(f"{made.uri}: {size}"))
    except Exception as error:
        return ended_early(error)


@flow(name="check")
def check(lake: str = "", deep: bool = False, repair: bool = False) -> State:
    """Compare a lake's files and rows with its catalog. The run fails if any are damaged or gone.

    Args:
        lake: The lake's folder or its lake.yaml; empty means the worker's PAIRMILL_LAKE, then lake/.
        deep: Also read every picture and compare its hash.
        repair: Finish removals, read lost pages again where sources allow, remove damaged files, and check again.
    """
    from pairmill.catalog.terms.controls import visible
    from pairmill.flows.check import check_steps, format_repairable

    said: list[str] = []

    def say(line: str) -> None:
        """Log a line for each damage, each repair and the sum."""
        said.append(visible(line))
        get_run_logger().info(visible(line))

    try:
        place = lake or default_lake()
        name_run(f"check {Path(place).name}")
        found = check_steps(place, deep, repair, say, get_run_logger().debug)
    except Exception as error:
        return ended_early(error)
    if not found.damages:
        return Completed(message=said[-1])
    remedy = f"; `repair` mends {share}" if not repair and (share := format_repairable(found)) else ""
    return Failed(message=f"{said[-1]}{remedy}")


@flow(name="maintain")
def maintain(lake: str = "", days: Annotated[int, Field(ge=1, le=3_650)] = 7, wait_minutes: Minutes = 60) -> State:
    """Merge a lake's small files, expire old snapshots, remove orphans and old caches, and retry failed fetches.

    Dataset versions and their rows stay. The run ends as Refused if another run writes to the lake all the time.

    Args:
        lake: The lake's folder or its lake.yaml; empty means the worker's PAIRMILL_LAKE, then lake/.
        days: Advanced. Age in days from which DuckLake's snapshots are removed.
        wait_minutes: Advanced. How long each step waits for a run that writes to the lake.
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
