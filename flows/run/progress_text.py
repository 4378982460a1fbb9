"""Format the progress of a step for people: rows, rate and time left."""

from typing import TYPE_CHECKING

from pairmill.catalog.terms.counted import counted

if TYPE_CHECKING:  # its module imports pyarrow, which `pairmill status` does without
    from pairmill.tasks.run.place.progress import Progress


def progress_text(progress: "Progress", seconds: float) -> str:
    """Format the progress after ``seconds`` of a step: "120 of 622 pictures, 2 in quarantine, 14/s, 36 s left".

    Rate and time left are averages over ``seconds``, left out for 0; before the first row the text says that the step
    starts, with its time so far. Returns '' for a step whose rows have no unit.
    """
    if not progress.unit:
        return ""
    lost = f", {progress.quarantined:,} in quarantine" if progress.quarantined else ""
    if progress.is_end:
        return f"{counted(progress.total, progress.unit)}{lost}"
    text = f"{progress.done:,} of {counted(progress.total, progress.unit)}{lost}"
    if not progress.done:
        return f"{text}, starting workers, {duration(seconds)} so far" if seconds >= 1 else text
    if not seconds:
        return text
    each = seconds / progress.done
    rate = f"{1 / each:,.3g}/s" if each < 1 else f"{each:.3g} s each"
    return f"{text}, {rate}, {duration((progress.total - progress.done) * each)} left"


def duration(seconds: float) -> str:
    """Format seconds for people: 40 s, 12 min, 3 h 20 min, 2 d 4 h."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 2880 else f"{minutes // 1440} d {minutes // 60 % 24} h"
