"""Format the progress of a step: rows, rate and the time that is left."""

from pairmill.tasks.run.progress import Progress


def progress_text(progress: Progress, seconds: float) -> str:
    """Format the progress after ``seconds`` of a step: "120 of 622 pictures, 14/s, 36 s left".

    Rate and time left are averages over the step so far. They are missing before the first row and after the last.
    Returns '' for a step whose rows mean nothing to people.
    """
    if not progress.unit:
        return ""
    if progress.is_end:
        return f"{progress.total:,} {progress.unit}"
    text = f"{progress.done:,} of {progress.total:,} {progress.unit}"
    if not progress.done or seconds <= 0:
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
