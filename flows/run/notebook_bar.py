"""Draw a run's progress in a Jupyter notebook."""

import sys
import time
from html import escape
from typing import Any

from pairmill.flows.run.progress_text import progress_text
from pairmill.tasks.run.place.progress import Progress, ShowProgress, not_shown

EVERY_SECONDS = 0.5


def show_progress() -> ShowProgress:
    """Return a callback that draws a run's progress below the cell; one that draws nothing outside of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return NotebookBar() if getattr(shell, "kernel", None) else not_shown


class NotebookBar:
    """Callback of a run that draws one bar, that of the current step, and redraws it every EVERY_SECONDS."""

    def __init__(self) -> None:
        from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

        self._html: Any = HTML
        self._handle: Any = display(HTML(""), display_id=True)
        self._step, self._began, self._shown_at = "", 0.0, 0.0

    def __call__(self, progress: Progress) -> None:
        """Draw the progress of a step."""
        now = time.monotonic()
        if progress.is_begin or progress.step != self._step:
            self._step, self._began, self._shown_at = progress.step, now, 0.0
        if progress.is_end or now - self._shown_at >= EVERY_SECONDS:
            self._shown_at = now
            text = escape(f"{progress.step}: {progress_text(progress, now - self._began)}".rstrip(": "))
            bar = f'<progress max="{max(1, progress.total)}" value="{progress.done}"></progress>'
            self._handle.update(self._html(f"{bar} {text}"))
