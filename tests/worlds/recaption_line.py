"""Run a recaption that kills itself (SIGKILL): ``python -m tests.worlds.recaption_line LAKE SOURCE STEP DONE [TO]``.

It does so after DONE committed work items of STEP, or after DONE captions in finished files of an export.
"""

import os
import signal
import sys

from pairmill.flows.recaption import recaption_session, recaption_steps
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.generate import caption_all
from pairmill.tasks.release.export import export
from pairmill.tasks.run.place.progress import Progress
from tests.worlds.shared import new_lake

FIRST = 8  # of 40 images: a few first captions, many others
TAR_ROWS = 10


def main(lake: str, source: str, victim: str, last: int, to: str = "") -> None:
    """Run the recaption."""
    caption_all.FIRST, caption_all.FIRST_ITEM, export.TAR_ROWS = FIRST, 4, TAR_ROWS

    def progress(at: Progress) -> None:
        if at.step == victim and last == (at.items if at.of_items else at.done):
            os.kill(os.getpid(), signal.SIGKILL)

    with recaption_session(load_recipe("demo"), [source], str(new_lake(lake)), Compute(workers=2)) as session:  # pyright: ignore[reportCallIssue]
        session.progress, session.commit_files = progress, 1
        recaption_steps(session, lambda step, held: step(held), lambda found: None, to, "webdataset")


if __name__ == "__main__":
    lake, source, victim, last, *to = sys.argv[1:]
    main(lake, source, victim, int(last), *to)
