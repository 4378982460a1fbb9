"""Examine every machine of a Ray cluster by a task on it: what it has, and what it lacks for a run."""

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions, entry_points, version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pairmill.catalog.lake.location import locate
from pairmill.catalog.terms.backend import GROUP as BACKENDS
from pairmill.catalog.terms.declared import GROUP as SCORERS
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.machine.finding import Finding, Patient, run_checks
from pairmill.flows.machine.hardware import disks, existing, gpus
from pairmill.ops.read.declared_formats import GROUP as FORMATS

if TYPE_CHECKING:
    from pairmill.catalog.recipe.recipe import Recipe

NOT_INSTALLED = "install there the Pairmill that starts runs, for the Python that Ray runs"
SEEN = 3  # files of a shared folder that every machine must see


@dataclass(frozen=True)
class Expected:
    """Requirements on each machine of a cluster: the starting machine's packages, and the places that a run reads."""

    python: str  # major and minor version of Python
    pairmill: str  # version of Pairmill
    packages: str  # digest of the versions of all installed packages
    extensions: tuple[str, ...]  # packages that declare scores, backends or formats, as NAME==VERSION
    data_path: str  # folder or s3:// prefix of the lake's data, '' if no lake is named
    files: tuple[str, ...]  # some files below ``data_path``, relative; empty on S3 and for a new lake
    sources: tuple[str, ...]  # places of the sources, without formats
    recipe: "Recipe | None"  # the recipe, whose models each machine needs; None for no check of models


@dataclass(frozen=True)
class NodeReport:
    """The findings of one machine as (name of the check, finding), with its CPUs and GPUs for Ray."""

    name: str
    cpus: float
    gpus: float
    findings: tuple[tuple[str, Finding], ...]

    @property
    def works(self) -> bool:
        """Whether stages run on this machine: a cluster's head often offers neither CPUs nor GPUs."""
        return bool(self.cpus or self.gpus)

    def by_state(self, *states: str) -> list[Finding]:
        """Return the findings whose state is one of ``states``."""
        return [finding for _, finding in self.findings if finding.state in states]


def check_nodes(address: str, lake: str, sources: Sequence[str], recipe: "Recipe") -> None:
    """Raise PairmillError if a machine of the cluster lacks something for the run; the message names the first one.

    Without this check the run would fail half-way, or quarantine pictures that a machine cannot reach.
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


def examine_nodes(
    address: str, lake: str, sources: Sequence[str] = (), recipe: "Recipe | None" = None
) -> list[NodeReport]:
    """Examine all machines of the cluster at ``address`` in parallel; return a report for each.

    Raises the errors of joining the cluster. ``lake`` may be '': its data is not looked for then.
    """
    from pairmill.ops.read.source import split_format
    from pairmill.tasks.run.cluster.ray_nodes import on_each_node

    places = tuple(split_format(uri)[1] for uri in sources)
    reports = []
    for each in on_each_node(address, node_state, expected(locate(lake).data_path if lake else "", places, recipe)):
        findings = each.answer or [("answer", Finding("fail", each.fault, NOT_INSTALLED))]
        reports.append(NodeReport(each.name, each.cpus, each.gpus, tuple(findings)))
    return reports


def expected(data_path: str, sources: tuple[str, ...], recipe: "Recipe | None") -> Expected:
    """Return the requirements on each machine, with the versions of this machine's packages."""
    folder, files = Path(data_path), []
    if "://" not in data_path and folder.is_dir():
        found = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
        files = list(islice(found, SEEN))
    here = _python(), version("pairmill"), _packages(), _extensions()
    return Expected(*here, data_path, tuple(files), sources, recipe)


def node_state(wanted: Expected) -> list[tuple[str, Finding]]:
    """Examine this machine; return each finding as (name of the check, finding)."""
    return list(run_checks(_CHECKS, wanted))


def _versions(wanted: Expected) -> Iterator[Finding]:
    """Compare Python, Pairmill and the other packages with those of the machine that starts runs."""
    here = version("pairmill")
    if _python() != wanted.python:
        remedy = f"install Python {wanted.python} there: Ray sends functions between equal versions only"
        yield Finding("fail", f"Python {_python()}, not {wanted.python}", remedy)
    if here != wanted.pairmill:
        yield Finding("fail", f"Pairmill {here}, not {wanted.pairmill}", f"pip install pairmill=={wanted.pairmill}")
    elif lacking := sorted(set(wanted.extensions) - set(_extensions())):
        yield Finding("fail", f"no {', '.join(lacking)}", f"pip install {' '.join(lacking)}")
    elif _packages() != wanted.packages:
        remedy = "install both from infra/requirements.lock: other versions of a model's library may score otherwise"
        yield Finding("warn", f"Pairmill {wanted.pairmill}, but other versions of its packages", remedy)
    else:
        yield Finding("ok", f"Pairmill {wanted.pairmill}, Python {wanted.python}, the same packages")


def _sources(wanted: Expected) -> Iterator[Finding]:
    """Check that this machine can read each source. Sources on the web are read by the starting machine alone."""
    for place in wanted.sources:
        if place.startswith("s3://"):
            yield _on_s3(place, "source")
        elif "://" not in place:
            yield _shared(place, os.path.exists(place), "source")


def _lake_data(wanted: Expected) -> Iterator[Finding]:
    """Check that the lake's data can be read here, and that a shared folder is the same folder."""
    if wanted.data_path.startswith("s3://"):
        yield _on_s3(wanted.data_path, "the lake's data")
    elif wanted.data_path:
        folder = Path(wanted.data_path)
        sees = all((folder / file).is_file() for file in wanted.files) and (folder.is_dir() or not wanted.files)
        yield _shared(wanted.data_path, sees and os.access(existing(folder), os.W_OK), "the lake's data")


def _models(wanted: Expected) -> Iterator[Finding]:
    from pairmill.flows.machine.recipe_models import recipe_models

    if wanted.recipe is not None:
        yield from recipe_models(Patient("", wanted.recipe))


_CHECKS = {
    "versions": _versions, "devices": gpus, "disk": lambda _: disks({}), "sources": _sources, "lake": _lake_data,
    "models": _models,
}  # fmt: skip


def _python() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def _packages() -> str:
    """Hash the names and versions of all installed packages to 12 hex digits."""
    found = sorted({f"{each.name.lower()}=={each.version}" for each in distributions()})
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:12]


def _extensions() -> tuple[str, ...]:
    """Return the installed packages that extend Pairmill by entry points, as NAME==VERSION, sorted."""
    found = [point.dist for group in (SCORERS, BACKENDS, FORMATS) for point in entry_points(group=group) if point.dist]
    return tuple(sorted({f"{each.name}=={each.version}" for each in found}))


def _on_s3(place: str, what: str) -> Finding:
    """Return a finding on whether this machine's keys can list an S3 prefix."""
    from pairmill.ops.read.places.s3 import filesystem

    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    try:
        filesystem().call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
    except Exception as error:  # botocore's and s3fs's own types, and those of the network
        trouble = f"{what} {place}: {str(error).splitlines()[0][:200] or type(error).__name__}"
        return Finding("fail", trouble, "set AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY there")
    return Finding("ok", f"{what} {place}: can be read")


def _shared(place: str, is_there: bool, what: str) -> Finding:
    """Return the finding for a folder that all machines must share."""
    if is_there:
        return Finding("ok", f"{what} {place}: is there")
    remedy = "put it on S3, or on a file system that every machine mounts at this path"
    return Finding("fail", f"{what} {place}: is not on this machine", remedy)
