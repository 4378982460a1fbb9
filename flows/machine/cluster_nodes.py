"""Examine every machine of a Ray cluster: what each has, and what it lacks for a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pairmill.catalog.lake.location import locate
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.machine.finding import Finding
from pairmill.flows.machine.node_state import expected, node_state

if TYPE_CHECKING:
    from pairmill.catalog.recipe.recipe import Recipe

NOT_INSTALLED = "install there the Pairmill that starts runs, for the Python that Ray runs"


@dataclass(frozen=True)
class NodeReport:
    """The findings of one machine, each with the name of its check."""

    name: str
    cpus: float
    gpus: float
    findings: tuple[tuple[str, Finding], ...]

    @property
    def works(self) -> bool:
        """Whether stages run there: a head often has neither CPUs nor GPUs for them."""
        return bool(self.cpus or self.gpus)

    def by_state(self, *states: str) -> list[Finding]:
        """Return the findings of these states."""
        return [finding for _, finding in self.findings if finding.state in states]


def examine_nodes(
    address: str, lake: str, sources: Sequence[str] = (), recipe: Recipe | None = None
) -> list[NodeReport]:
    """Examine each machine of the cluster at ``address`` at the same time. Raises what joining the cluster raises."""
    from pairmill.ops.read.source import split_format
    from pairmill.tasks.run.cluster.ray_nodes import on_each_node

    data_path = locate(lake).data_path if lake else ""
    places = tuple(split_format(uri)[1] for uri in sources)
    found = on_each_node(address, node_state, expected(data_path, places, recipe))
    reports = []
    for each in found:
        findings = each.answer or [("answer", Finding("fail", each.fault, NOT_INSTALLED))]
        reports.append(NodeReport(each.name, each.cpus, each.gpus, tuple(findings)))
    return reports


def check_nodes(address: str, lake: str, sources: Sequence[str], recipe: Recipe) -> None:
    """Raise PairmillError if a machine that would work in a run lacks something for it; the message names the first.

    Without this the run would fail in its middle, or take pictures for damaged that a machine cannot see.
    """
    reports = [report for report in examine_nodes(address, lake, sources, recipe) if report.works]
    lacking = [(report, failed[0]) for report in reports if (failed := report.by_state("fail"))]
    if not lacking:
        return
    report, finding = lacking[0]
    remedy = f": {finding.remedy}" if finding.remedy else ""
    raise PairmillError(
        f"{len(lacking)} of {len(reports)} machines of the Ray cluster cannot do this run. {report.name}: "
        f"{finding.text}{remedy}. `pairmill doctor --ray {address}` shows them all."
    )
