"""Implement `pairmill doctor`: test this machine, and print one line for each finding."""

from argparse import Namespace
from collections import Counter

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.secrets import without_users
from pairmill.flows.command.pairmill_read import show
from pairmill.flows.doctor.examinations import examine
from pairmill.flows.doctor.finding import Finding, Patient

COLUMNS = ["state", "check", "finding", "remedy"]


def doctor(args: Namespace) -> int:
    """Print the findings as they are made; return 1 if one would stop a run."""
    patient = Patient(args.lake, _recipe(args))
    found: list[tuple[str, Finding]] = []
    for name, finding in examine(patient):
        found.append((name, finding))
        if args.format == "table":
            print(_line(name, finding), flush=True)
    states = Counter(finding.state for _, finding in found)
    if args.format == "table":
        print(f"{states['ok']} ok, {states['warn']} to look at, {states['fail']} to mend")
    else:
        rows = [(each.state, name, without_users(each.text), each.remedy) for name, each in found]
        show(COLUMNS, rows, args.format)
    return int(states["fail"] > 0)


def _line(name: str, finding: Finding) -> str:
    """Format a finding as one line: state, check, what was found, the remedy."""
    remedy = f": {finding.remedy}" if finding.remedy else ""
    return visible(f"{finding.state:<5} {name:<12} {without_users(finding.text)}{remedy}".replace("\n", " "))


def _recipe(args: Namespace):
    """Load the recipe of the command line, None if none is named."""
    if not (args.recipe or args.set or args.models != "recipe"):
        return None
    from pairmill.flows.command.pairmill_run import named_recipe

    return named_recipe(args)
