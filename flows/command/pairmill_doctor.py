"""Implement `pairmill doctor`: test this machine, or each machine of a Ray cluster, and name the remedies."""

from argparse import Namespace
from collections import Counter

from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import BadRecipe, PairmillError
from pairmill.catalog.terms.secrets import without_users
from pairmill.flows.command.ask import show
from pairmill.flows.command.option_types import overrides
from pairmill.flows.doctor.examinations import EXAMINATIONS
from pairmill.flows.machine.finding import Finding, Patient, run_checks

NODE_COLUMNS = ["node", "CPUs", "GPUs", "has", "lacks"]
COLUMNS = ["state", "check", "finding", "remedy"]


def doctor(args: Namespace) -> int:
    """Print each finding of the checks as it comes; return 1 if one would stop a run.

    Raises PairmillError for ``--source`` without ``--ray``: a run on this machine checks its sources itself.
    """
    if args.ray:
        return _cluster(args)
    if args.source:
        raise PairmillError("--source is for the machines of a cluster: add --ray ADDRESS, such as --ray auto.")
    found: list[tuple[str, Finding]] = []
    for name, finding in run_checks(EXAMINATIONS, Patient(args.lake, _recipe(args))):
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


def _cluster(args: Namespace) -> int:
    """Print what each machine of the cluster has and lacks, then the remedies; return 1 if a run would be refused."""
    from pairmill.flows.machine.cluster_nodes import examine_nodes

    recipe = _recipe(args)
    reports = examine_nodes(args.ray, args.lake, args.source or (recipe.sources if recipe else ()), recipe)
    if args.format == "table":
        rows = [(report.name, f"{report.cpus:g}", f"{report.gpus:g}", _texts(report.by_state("ok")),
                 _texts(report.by_state("warn", "fail")) or "nothing") for report in reports]  # fmt: skip
        show(NODE_COLUMNS, rows, "table")
        for report in reports:
            for finding in report.by_state("fail", "warn"):
                print(_line(report.name, finding))
    else:
        found = [(report.name, name, each) for report in reports for name, each in report.findings]
        rows = [(node, each.state, name, without_users(each.text), each.remedy) for node, name, each in found]
        show(["node", *COLUMNS], rows, args.format)
    return int(any(report.by_state("fail") for report in reports if report.works))


def _texts(findings: list[Finding]) -> str:
    """Join the texts of findings to one line, without users and passwords of addresses."""
    return without_users("; ".join(finding.text for finding in findings))


def _line(name: str, finding: Finding) -> str:
    """Format a finding as one line: state, check, text, remedy."""
    remedy = f": {finding.remedy}" if finding.remedy else ""
    return visible(f"{finding.state:<5} {name:<12} {without_users(finding.text)}{remedy}".replace("\n", " "))


def _recipe(args: Namespace) -> Recipe | None:
    """Load the recipe that the command line names, None without one. Raises BadRecipe for its options without it."""
    if not args.recipe:
        if args.set or args.models != "recipe":
            raise BadRecipe("--set and --models change a recipe; name it before them: RECIPE --set …")
        return None
    from pairmill.flows.run.settings import load_recipe

    return load_recipe(args.recipe, overrides(args.set), args.models)
