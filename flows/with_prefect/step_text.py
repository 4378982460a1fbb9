"""Format what a step did for its log: "ingest: 26 shards, 640 documents, 3,588 images, 4.2 s"."""

from collections import Counter
from collections.abc import Mapping

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.write.runs import partitions_since
from pairmill.flows.run.progress_text import duration, unit_of

# What a step that reads sources adds. The rows of other steps have their own unit, and need no count of a table.
CONTENT = ("documents", "images", "sentences", "links")
FAILED = "quarantine"


def added_since(lake: Lake, run_id: str, commit: int) -> dict[str, int]:
    """Count the shards and the rows of CONTENT and FAILED that the run committed after ``commit``, without zeros."""
    found = partitions_since(lake, run_id, commit)
    counts = Counter({"shards": len({shard for _, shard, _ in found})})
    for name, _, rows in found:
        counts[name] += rows
    return {name: counts[name] for name in ("shards", *CONTENT, FAILED) if counts[name]}


def step_text(step: str, added: Mapping[str, int], worked: Mapping[tuple[str, str], int], seconds: float) -> str:
    """Format one step.

    Args:
        step: The step's name.
        added: Shards and rows by table, as of `added_since`.
        worked: Rows by stage and unit. A stage without a unit is left out. It is named where there are several.
        seconds: What the step took.
    """
    stages = {stage: f"{n:,} {unit_of(n, unit)}" for (stage, unit), n in worked.items() if n and unit}
    counts = {name: f"{n:,} {unit_of(n, name)}" for name, n in added.items() if name != FAILED}
    one = len(stages) == 1
    said = [*counts.values(), *(text if one else f"{stage} {text}" for stage, text in stages.items())]
    said += [f"{added[FAILED]:,} in quarantine"] if added.get(FAILED) else []
    took = f"{seconds:.1f} s" if seconds < 60 else duration(seconds)
    return f"{step}: {', '.join([*dict.fromkeys(said), took])}" if said else f"{step}: nothing was pending"
