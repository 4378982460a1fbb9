"""Check an installation and a lake for `pairmill doctor`: the checks in order; most import their modules when called.

No value of a credential is read into a finding.
"""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pairmill.catalog.lake.location import locate
from pairmill.flows.machine.finding import Finding, Patient
from pairmill.flows.machine.hardware import disk, gpus, memory
from pairmill.flows.machine.recipe_models import is_here, recipe_models
from pairmill.ops.models.backends import require_images
from pairmill.ops.models.model_error import ModelError

if TYPE_CHECKING:
    from pairmill.ops.models.vision_language.model_check import ModelCheck

NAME = "pairmill"
NEEDED_FOR = {"parser": "rules on grammar and mined tags", "mcp": "`pairmill mcp`"}
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
KEY, SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
OTHERS = ("AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
          "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
SECONDS = 5
IMPORT_SECONDS = 600  # of a cold disk
# The libraries that a child process imports together, by extra.
IMPORTED = {"": ("torch", "torchvision"), "parser": ("spacy",), "map": ("umap",), "mcp": ("mcp",)}
CHILD = "import sys\nfor name in sys.argv[1:]:\n    print(name, flush=True)\n    __import__(name)"
CARD = 80e9  # bytes of an A100's or H100's memory
ROWS = 4  # of a model check
PROMPT_TOKENS = 40


def python_version(patient: Patient) -> Iterator[Finding]:
    """Yield a finding on whether Pairmill supports this version of Python."""
    wanted = metadata(NAME)["Requires-Python"] or ""
    found = f"{'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}"
    if SpecifierSet(wanted).contains(found.split(",")[0], prereleases=True):
        yield Finding("ok", found)
    else:
        yield Finding("fail", f"{found}; Pairmill needs {wanted}", "make an environment of Python 3.11 or 3.12")


def packages(patient: Patient) -> Iterator[Finding]:
    """Yield a finding on whether the installed packages have the versions that Pairmill requires."""
    needed = _needed("")
    if wrong := [each for each in needed if _trouble(each)]:
        wanted = " ".join(f"'{each.name}{each.specifier}'" for each in wrong)
        yield Finding("fail", "; ".join(map(_trouble, wrong)), f"pip install {wanted}")
    else:
        yield Finding("ok", f"Pairmill {version(NAME)} and the {len(needed)} packages that it needs")


def extras(patient: Patient) -> Iterator[Finding]:
    """Yield a finding for each extra (optional set of packages): complete, or its missing and unfit packages."""
    for extra in metadata(NAME).get_all("Provides-Extra") or []:
        purpose = f", for {NEEDED_FOR[extra]}" if extra in NEEDED_FOR else ""
        if wrong := [trouble for each in _needed(extra) if (trouble := _trouble(each))]:
            trouble = f"[{extra}]{purpose}, is not whole: {'; '.join(wrong)}"
            yield Finding("warn", trouble, f"pip install '{NAME}[{extra}]'")
        else:
            yield Finding("ok", f"[{extra}]{purpose}")


def imports(patient: Patient) -> Iterator[Finding]:
    """Import torch with torchvision, and each installed extra's library; yield a finding on each child process.

    Packages of fitting versions may still not fit each other: builds from two indexes, or for another CPU. The
    processes run side by side: one after another they take 16 s.
    """
    wanted = {extra: names for extra, names in IMPORTED.items() if not extra or not any(map(_trouble, _needed(extra)))}
    with ThreadPoolExecutor(len(wanted)) as threads:
        yield from map(_import_finding, wanted, threads.map(_import, wanted.values()))


def _import(names: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Import libraries in a child process; it prints each name first, so that its output ends with one that fails."""
    command = [sys.executable, "-P", "-c", CHILD, *names]
    return subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_SECONDS)


def _import_finding(extra: str, done: subprocess.CompletedProcess[str]) -> Finding:
    """Return the finding on an extra's libraries ('' for those of every installation), from their child process."""
    names = IMPORTED[extra]
    if not done.returncode:
        return Finding("ok", f"{', '.join(names)} can be imported")
    name = (done.stdout.split() or names)[-1]
    why = (done.stderr.strip().splitlines() or [f"its process ended with status {done.returncode}"])[-1][:200]
    if extra:
        remedy = f"pip install --force-reinstall '{NAME}[{extra}]'"
    else:
        pair = [each for each in _needed("") if each.name in names]
        wanted = " ".join(f"'{each.name}{each.specifier}'" for each in pair)
        remedy = f"install them from one index: pip install --force-reinstall {wanted}"
    here = ", ".join(f"{each.name} {version(each.name)}" for each in _needed(extra) if extra or each.name in names)
    return Finding("fail", f"{name} cannot be imported ({why}); installed: {here}", remedy)


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
    """Return how the installed package violates a requirement, '' if it fits."""
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(installed, prereleases=True):
        return ""
    return f"{requirement.name} {installed} is installed, {requirement.specifier} is needed"


def credentials(patient: Patient) -> Iterator[Finding]:
    """Yield findings on credentials: for S3, the Hugging Face hub, and Postgres if the lake's catalog is there."""
    location = locate(patient.lake)
    yield s3_credentials(os.environ, Path.home(), location.on_s3)
    yield hub_token(os.environ)
    if location.on_postgres:
        file = Path(os.environ.get("PGPASSFILE") or Path.home() / ".pgpass")
        is_set = "PGPASSWORD" in os.environ or file.is_file()
        yield Finding("ok", f"Postgres: {'a password is set' if is_set else 'no password, which a server may want'}")


def s3_credentials(environment: Mapping[str, str], home: Path, needed: bool) -> Finding:
    """Return a finding on the keys for S3. A lake on S3 (``needed``) requires them in environment variables."""
    has_key, has_secret = bool(environment.get(KEY)), bool(environment.get(SECRET))
    if has_key != has_secret:
        there, missing = (KEY, SECRET) if has_key else (SECRET, KEY)
        return Finding("fail" if needed else "warn", f"S3: {there} is set, {missing} is not", f"set {missing} too")
    if has_key:
        return Finding("ok", f"S3: {KEY} and {SECRET} are set")
    if needed:
        return Finding("fail", "S3: no keys, and the lake is there", f"set {KEY} and {SECRET}")
    if name := next((name for name in OTHERS if environment.get(name)), None):
        return Finding("ok", f"S3: {name} is set")
    file = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials")
    if file.is_file():
        return Finding("ok", f"S3: keys in {file}")
    return Finding("ok", "S3: no keys; only s3:// needs them")


def hub_token(environment: Mapping[str, str]) -> Finding:
    """Return a finding on the token for the Hugging Face hub; only gated models need one."""
    from huggingface_hub.constants import HF_TOKEN_PATH

    if name := next((name for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") if environment.get(name)), None):
        return Finding("ok", f"Hugging Face: {name} is set")
    if Path(HF_TOKEN_PATH).is_file():
        return Finding("ok", f"Hugging Face: a token in {HF_TOKEN_PATH}")
    return Finding("ok", "Hugging Face: no token; only gated models need it")


def server_state(patient: Patient) -> Iterator[Finding]:
    """Yield a finding on the Prefect server, configured or of `pairmill up`: does it answer, in the right version?"""
    from pairmill.flows.with_prefect.local_prefect import known_server  # imports Prefect's settings, 1.3 s

    if not (api := known_server()):
        yield Finding("ok", "no server; `pairmill run` needs none, `pairmill up` starts one")
        return
    try:
        with urllib.request.urlopen(f"{api}/admin/version", timeout=SECONDS) as answer:
            found = str(json.load(answer))
    except urllib.error.HTTPError as error:
        yield Finding("ok", f"{api} answers (status {error.code})")  # Prefect Cloud has no such page
        return
    except (OSError, ValueError) as error:
        remedy = "start it (`pairmill up` starts one where PREFECT_API_URL is unset), or correct PREFECT_API_URL"
        yield Finding("fail", f"{api} does not answer ({getattr(error, 'reason', error)})", remedy)
        return
    here = version("prefect")
    if found.split(".")[:2] == here.split(".")[:2]:
        yield Finding("ok", f"{api} answers, version {found}")
    else:
        yield Finding("warn", f"{api} has version {found}, here is {here}", f"use a server of version {here}")


def lake_state(patient: Patient) -> Iterator[Finding]:
    """Open the lake for reading; yield findings on its format, its catalog's seal, and its writing process."""
    from pairmill.catalog.lake import schema, seal
    from pairmill.catalog.lake.lease_row import holder_of
    from pairmill.catalog.lake.new_lake import check_new_place
    from pairmill.catalog.lake.opening import create_or_open
    from pairmill.flows.api.opened_lake import OpenLake

    location = locate(patient.lake)
    if not location.on_postgres and not Path(location.metadata).is_file():
        check_new_place(location)
        yield Finding("ok", f"none at '{patient.lake}' yet; the first run makes it")
        return
    with create_or_open(patient.lake, read_only=True) as lake:
        found, holder = schema.version(lake), holder_of(lake.metadata)
        images = OpenLake(lake).status().rows["images"]
        yield Finding("ok", f"'{patient.lake}' opens: {images:,} images")
    what = f"format {found.format}, schema {found.migrations}"
    if found.migrations == schema.NEWEST:
        yield Finding("ok", f"{what}, the newest")
    else:
        yield Finding("warn", f"{what} of {schema.NEWEST}", "the next run migrates it; copy the lake before")
    if not location.on_postgres:
        if seal.is_sealed(location):
            yield Finding("ok", "its catalog is sealed and as it was last written")
        elif holder is None or holder.is_dead():
            yield Finding("warn", "its catalog has no seal: the last run was killed", "the next run seals it")
    if holder is None:
        yield Finding("ok", "nobody writes to it")
    elif holder.is_dead():
        yield Finding("ok", f"its writer has died ({holder}); the next run takes over")
    else:
        yield Finding("ok", f"is written by {holder}; a second run waits for it")


def captioner_costs(patient: Patient) -> Iterator[Finding]:
    """Yield a finding for each captioner whose model is on this machine: load it, and measure ROWS pictures."""
    for captioner in patient.recipe.captioners if patient.recipe else ():
        assert patient.recipe is not None
        spec = patient.recipe.models[captioner.model]
        if not spec.startswith("hf:") or not is_here(spec):
            continue
        from pairmill.ops.models.vision_language.model_check import check_model  # torch, 3 s

        pictures = tuple(sorted(captioner.processor.model_dump().items()))
        try:
            require_images(captioner.model, spec)
            found = check_model(spec, captioner.precision, pictures, captioner.side)
        except ModelError as error:
            yield Finding("fail", f"{captioner.name}: {error}")
        else:
            state = "ok" if found.alike == ROWS else "warn"
            yield Finding(state, f"{captioner.name}: {_costs(found, captioner.precision, captioner.max_tokens)}")


def _costs(found: "ModelCheck", precision: str, max_tokens: int) -> str:
    """Format the measurements of a model check as one line."""
    tokens = ", ".join(f"{n:,} of {width} x {height}" for (height, width), n in found.tokens.items())
    why = found.not_captured
    parts = [
        f"{found.architecture}, {found.weights / 1e9:,.2f} GB of weights in {precision}",
        f"tokens a picture: {tokens}",
        f"{found.milliseconds:,.1f} ms of a CPU and {found.input_bytes / 1e6:,.2f} MB to prepare one",
        f"{found.alike} of {ROWS} answers in a batch are those one by one",
        f"decodes step by step: {why}" if why else "decoding is captured on a GPU in bf16",
    ]
    if found.token_bytes:
        row = found.token_bytes * (sorted(found.tokens.values())[1] + PROMPT_TOKENS + max_tokens)
        room = max(0.0, 0.9 * CARD - found.weights) / row
        parts.append(f"{row / 1e6:,.2f} MB a row with {max_tokens} tokens of answer, {room:,.0f} rows in 80 GB")
    return "; ".join(parts)


EXAMINATIONS = {
    "python": python_version, "packages": packages, "extras": extras, "imports": imports, "devices": gpus,
    "memory": memory, "disk": disk, "credentials": credentials, "lake": lake_state, "prefect": server_state,
    "models": recipe_models, "captioners": captioner_costs,  # the slowest: it loads them
}  # fmt: skip
