"""Print the outcome of a run: funnel, sample pairs, the report's path, and an SQL query to continue with."""

from rich.console import Console
from rich.table import Table

from pairmill.catalog.recipe.parts_of_texts import OWN
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.counted import counted
from pairmill.catalog.terms.demo_weights import MARK
from pairmill.flows.api.answer_types import FunnelStep
from pairmill.flows.command.terminal import DEMO, print_notes, shown, table
from pairmill.flows.run.outcome import Outcome


def print_outcome(console: Console, found: Outcome, notes: list[str], is_new: bool = True) -> None:
    """Print the outcome and the run's ``notes``; ``is_new`` False means that no new version was published."""
    dataset = found.dataset
    said = "published" if is_new else "unchanged: the newest version already is this dataset"
    recall = "" if dataset.recall is None else f", recall of the retrieval {dataset.recall:.3f}"
    by = f", by [yellow]{MARK}[/]" if found.demo_weights else ""
    console.print(f"\n[bold]{shown(dataset)}[/]  {counted(dataset.n_pairs, 'pairs')} ({said}){recall}{by}")
    for kind in ("image", "sentence"):
        if any(step.n_in for step in found.funnel if step.kind == kind):
            console.print(funnel_table(found.funnel, kind))
    for rate in () if found.demo_weights else found.canaries:  # the demo's scores say nothing of quality
        if not any(str(rate) in note for note in notes):
            console.print(f"rule    {shown(rate)}")
    if found.wrong_pairs:
        console.print(shown(found.wrong_pairs))
    for rule, keep in found.calibrated:
        console.print(f"rule    {shown(rule)}: {shown(keep)}")
    for pair in found.samples:
        console.print(_pair(pair, found.demo_weights))
    print_notes(console, notes)
    if found.limit:
        console.print(f"\nyield   {shown(found.limit)}")
    if found.report:
        console.print(f"report  {shown(found.report)}")
    if dataset.n_pairs:
        console.print(f"go on   {shown(found.sql)}")


def funnel_table(steps: list[FunnelStep], kind: str) -> Table:
    """Build a table of the rows that each rule received, dropped and kept; ``kind`` is 'image' or 'sentence'."""
    made = table(f"\n{kind}s", ["rule"], ["in", "dropped", "kept"])
    for step in (step for step in steps if step.kind == kind):
        kept = step.n_in - step.n_dropped
        made.add_row(shown(step.rule), f"{step.n_in:,}", f"{step.n_dropped:,}" if step.n_dropped else "·", f"{kept:,}")
    return made


def _pair(pair: dict, demo_weights: tuple[str, ...]) -> str:
    """Format a pair: address, size, texts with similarities, generated texts; mark texts by the demo's models."""
    lines = [f"\n[bold]{shown(pair['raw_image_url'] or pair['image_id'])}[/]  {pair['width']} x {pair['height']}"]
    for name, text, similarity in text_columns.real_texts(pair):
        lines.append(f"  {name}     {shown(text)}  [dim]{similarity:.3f}[/]")
    for name, model in (("caption", "captioner"), ("syn_text", "fuser")):
        is_own = name == "caption" and pair["captioner"] == OWN
        mark = DEMO if model in demo_weights and not is_own else ""
        lines += [f"  {name:<8}  {mark}{shown(pair[name])}"] if pair[name] else []
    return "\n".join(lines)
