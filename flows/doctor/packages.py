"""Check Python and the installed packages against what Pairmill's own metadata declares."""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pairmill.flows.machine.finding import Finding, Patient

NAME = "pairmill"
NEEDED_FOR = {"parser": "rules on grammar and mined tags", "mcp": "`pairmill mcp`"}
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


def python_version(patient: Patient) -> Iterator[Finding]:
    """Compare this Python with the versions that Pairmill is made for."""
    wanted = metadata(NAME)["Requires-Python"] or ""
    found = f"{'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}"
    if SpecifierSet(wanted).contains(found.split(",")[0], prereleases=True):
        yield Finding("ok", found)
    else:
        yield Finding("fail", f"{found}; Pairmill needs {wanted}", "make an environment of Python 3.11 or 3.12")


def packages(patient: Patient) -> Iterator[Finding]:
    """Compare the installed packages with the declared versions."""
    needed = _needed("")
    if wrong := [each for each in needed if _trouble(each)]:
        wanted = " ".join(f"'{each.name}{each.specifier}'" for each in wrong)
        yield Finding("fail", "; ".join(map(_trouble, wrong)), f"pip install {wanted}")
    else:
        yield Finding("ok", f"Pairmill {version(NAME)} and the {len(needed)} packages that it needs")


def extras(patient: Patient) -> Iterator[Finding]:
    """Yield a finding for each extra."""
    for extra in metadata(NAME).get_all("Provides-Extra") or []:
        purpose = f", for {NEEDED_FOR[extra]}" if extra in NEEDED_FOR else ""
        if wrong := [trouble for each in _needed(extra) if (trouble := _trouble(each))]:
            yield Finding(
                "warn", f"[{extra}]{purpose}, is not whole: {'; '.join(wrong)}", f"pip install '{NAME}[{extra}]'"
            )
        else:
            yield Finding("ok", f"[{extra}]{purpose}")


def _needed(extra: str) -> list[Requirement]:
    """List the requirements of an extra, '' for those of every installation, that apply to this machine."""
    found = []
    for text in requires(NAME) or []:
        requirement = Requirement(text)
        named = _EXTRA.findall(str(requirement.marker or ""))
        if (extra in named if extra else not named) and (
            requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        ):
            found.append(requirement)
    return found


def _trouble(requirement: Requirement) -> str:
    """Return what is wrong with an installed package, '' if it fits."""
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(installed, prereleases=True):
        return ""
    return f"{requirement.name} {installed} is installed, {requirement.specifier} is needed"
