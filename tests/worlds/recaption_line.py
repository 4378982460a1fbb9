"""Run the recipe `captions` and kill this process by SIGKILL in the middle.

``python -m tests.worlds.recaption_line LAKE SOURCE DONE IN_FIRST``.

It kills itself after DONE committed work items of the first captions (IN_FIRST is True), or of the others.
"""

import os
import signal
import sys

from pairmill.flows.curate import curate_steps
from pairmill.flows.run.approval import FirstCaptions
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, captions_recipe, load_recipe
from pairmill.tasks.generate import caption
from pairmill.tasks.run.place.progress import Progress
from tests.worlds.shared import new_lake

FIRST, FIRST_ITEM = 8, 4  # of 40 images: a few first captions, many others
TAR_ROWS = 10


def main(lake: str, source: str, last: int, in_first: bool) -> None:
    """Run the recipe."""
    caption.FIRST, caption.FIRST_ITEM = FIRST, FIRST_ITEM
    recipe, compute = captions_recipe(load_recipe("demo")), Compute.model_validate({"workers": 2})

    def progress(at: Progress) -> None:
        done = at.items if at.of_items else at.done
        if at.step == "caption main" and done == last and (opened.waves == 1) == in_first:
            os.kill(os.getpid(), signal.SIGKILL)

    with session(recipe, [source], str(new_lake(lake)), compute) as opened:
        opened.progress, opened.commit_files = progress, 1
        curate_steps(opened, FirstCaptions(opened, lambda step, held: step(held), lambda found: None))


if __name__ == "__main__":
    lake, source, last, in_first = sys.argv[1:]
    main(lake, source, int(last), in_first == "True")
