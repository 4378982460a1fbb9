"""Follow a run from outside: metrics, logs and alerts receive its progress, commits and stalls."""

from collections.abc import Sequence

from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.place import json_log
from pairmill.tasks.run.place.progress import Progress


class Observer:
    """What a session tells about its run; this class ignores all of it. An error of an observer ends the run."""

    def progressed(self, progress: Progress) -> None:
        """Note the progress of a step, as `Session.progress` gets it."""
        return None

    def finished(self, step: str, manifests: Sequence[Manifest], gpus: float) -> None:
        """Note the priced partitions of one finished item, by a worker with ``gpus`` GPUs. They are not committed."""
        return None

    def committed(self, manifests: Sequence[Manifest], seconds: float) -> None:
        """Note that partitions are committed, and the seconds that it took. Called in any thread."""
        return None

    def stalled(self, step: str, report: str) -> None:
        """Note that a step finished nothing for a long time, and that the workers of ``report`` were ended."""
        return None


class LogLines(Observer):
    """Log the begin and the end of each step as JSON lines, which name the run and the step from then on."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    def progressed(self, progress: Progress) -> None:
        """Log the begin or the end of a round."""
        json_log.work_at(self._run_id, progress.step)
        json_log.log_progress(progress)
