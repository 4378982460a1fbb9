"""Pause a curate run before texts are generated, and wait for a person's answer in a form.

The pause shows the images nearest each threshold. Its scores are computed by a run of its own, which ends before the
question, so that the lake's lease is free meanwhile. The run after the answer finds those scores, unless a changed
threshold lets more items in.
"""

import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.exceptions import FlowPauseTimeout
from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from pydantic import Field

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.recipe import Recipe, apply_overrides
from pairmill.catalog.terms.error import BadRecipe, NotApproved
from pairmill.catalog.write import lease, runs
from pairmill.flows.curate import measure_steps
from pairmill.flows.run.approval import BesideThresholds, beside_thresholds, caption_first
from pairmill.flows.run.progress_text import duration
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute
from pairmill.flows.with_prefect.artifacts import ProgressArtifacts, browse_link, code, create_first_captions, plain
from pairmill.flows.with_prefect.step_as_task import as_task

FLOW = "curate up to the gate"
POLL_SECONDS = 5


class Thresholds(RunInput):
    """Form by which a person resumes a paused run: approval, the person's name, and changed rules."""

    approve: bool = Field(False, description="Go on to generate texts. Without it the run ends here.")
    by: str = Field("", max_length=200, description="Who answers. It is recorded in the lake, with the time.")
    changes: dict[str, str] = Field(
        {}, description='Rules to change, such as {"images.short_side.keep": "least(width, height) >= 100"}.'
    )


@dataclass(frozen=True)
class Answer:
    """A person's answer: who, when, whether the run may go on, and the settings of rules that they changed."""

    by: str
    at: datetime
    approved: bool
    changes: dict[str, str]

    def __str__(self) -> str:
        verdict = "approved" if self.approved else "declined"
        with_changes = ", ".join(f"{key} = {value}" for key, value in self.changes.items())
        changes = f", changed: {with_changes}" if with_changes else ""
        return f"thresholds {verdict} by {self.by} at {self.at:%Y-%m-%d %H:%M:%S} UTC{changes}"


def through_gate(
    recipe: Recipe, sources: list[str], lake: str, compute: Compute, hours: int, retry: str
) -> tuple[Recipe, Answer]:
    """Compute the scores, show the images nearest each threshold, and wait for a person's answer.

    Items that are quarantined for the reason ``retry`` ('' for none) are tried again first. A recipe that only captions
    has no threshold before its captions: its first captions are shown instead.

    Returns the recipe with the person's changes, and the answer. Raises NotApproved if a person declines, or nobody
    answers within ``hours``; LeaseHeld if another run writes to the lake when the answer is to be recorded.
    """
    with session(recipe, sources, lake, compute, FLOW, run_id=uuid.uuid4().hex, retry=retry) as opened:
        opened.progress = bars = ProgressArtifacts()
        opened.waiting = bars.waiting
        measure_steps(opened, as_task, retry)
        shown = beside_thresholds(opened)
        if recipe.only_captions:
            create_first_captions(caption_first(opened, as_task))
        else:
            said = "What lies nearest each threshold"
            create_markdown_artifact(_values_beside(shown), key="thresholds", description=said)
    began = time.monotonic()
    answer, chosen = _wait_for_answer(recipe, shown, hours)
    get_run_logger().info(f"{answer}; it waited {duration(time.monotonic() - began)}")
    with create_or_open(lake) as found, lease.writing(found, shown.run_id, "gate", 60 * compute.wait_minutes):
        runs.add_note(found, shown.run_id, str(answer))
    if not answer.approved:
        raise NotApproved(f"{answer}. What is made stays in the lake, and nothing more was generated; run it again.")
    return chosen, answer


def _values_beside(shown: BesideThresholds) -> str:
    """Return Markdown with the values on both sides of each threshold, how to change it, and where the pictures are."""
    lines = ["# Beside the thresholds", f"The rules so far keep {shown.kept:,} of {shown.images:,} pictures.", ""]
    lines += [f"- The pictures: {code(shown.page)}"]
    lines += [f"- [All pictures of the lake]({link})"] if (link := browse_link("gallery")) else []
    for rule, keep in shown.rules.items():
        edges = {(item.label, item.edge) for item in shown.items if item.rule == rule}
        if edges:
            lines += ["", f"## {plain(rule)}", f"Keeps {code(keep)}. To change it: {code(f'images.{rule}.keep')}."]
        for label, edge in sorted(edges):
            found = [item for item in shown.items if (item.rule, item.label, item.edge) == (rule, label, edge)]
            values = [f"{item.value:g} {'dropped' if item.dropped_by else 'kept'}" for item in found]
            lines += ["", f"{code(label)} beside {edge:g}: {', '.join(values)}"]
    return "\n".join(lines)


def _wait_for_answer(recipe: Recipe, shown: BesideThresholds, hours: int) -> tuple[Answer, Recipe]:
    """Wait for a valid answer, with a name and changes of rules alone; ask again after an invalid one."""
    end, trouble = datetime.now(UTC) + timedelta(hours=hours), ""
    while True:
        answer = _ask(recipe, shown, end, trouble)
        try:
            if not answer.by:
                raise BadRecipe("`by` is empty: say who answers.")
            if not answer.approved:
                return answer, recipe
            if other := next((key for key in answer.changes if not key.startswith(("images.", "sentences."))), ""):
                raise BadRecipe(f"'{other}' is no rule: name its setting as in images.short_side.keep.")
            return answer, apply_overrides(recipe, answer.changes)
        except BadRecipe as error:
            trouble = str(error)


def _ask(recipe: Recipe, shown: BesideThresholds, end: datetime, trouble: str) -> Answer:
    """Pause until a person answers, ``end`` at the latest. Raises NotApproved if nobody answers by then."""
    left = (end - datetime.now(UTC)).total_seconds()
    what = "`thresholds` names the page of pictures beside each threshold"
    if recipe.only_captions:
        what = "`first-captions` names the file of the first captions"
    asked = (
        f"The artifact {what}; {shown.kept:,} of {shown.images:,} are kept so far. Tick `approve`, change rules if "
        f"need be, and say who you are. The run waits until {end:%Y-%m-%d %H:%M} UTC ({duration(left)}), and keeps "
        "nobody from writing to the lake."
    )
    get_run_logger().info(f"paused: {f'{trouble} ' if trouble else ''}{asked}")
    form: Any = Thresholds.with_initial_data(description=f"**{plain(trouble)}**\n\n{asked}" if trouble else asked)
    try:
        found: Any = pause_flow_run(wait_for_input=form, timeout=max(1, int(left)), poll_interval=POLL_SECONDS)
    except FlowPauseTimeout:
        raise NotApproved("nobody answered at the gate in time; run it again, what is measured stays.") from None
    return Answer(found.by.strip(), datetime.now(UTC), found.approve, dict(found.changes))
