"""Check whether each model of a recipe is on this machine, can be downloaded, or is served at its endpoint."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from pairmill.catalog.recipe.recipe import Recipe
from pairmill.flows.machine.finding import Finding, Patient
from pairmill.ops.models.backends import content_digest
from pairmill.ops.models.http.http_spec import PREFIX, parse_http
from pairmill.ops.models.hub_model import MissingModel, missing_model
from pairmill.ops.models.model_digest import hub_is_reachable, on_s3, resolve
from pairmill.ops.models.model_error import ModelError, NotDownloaded
from pairmill.ops.models.s3_folder import list_folder

FILES = ("open_clip:", "hf:", "spacy:")
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
SECONDS = 5


def recipe_models(patient: Patient) -> Iterator[Finding]:
    """Yield a finding for each model of the recipe. A tag of open_clip takes 3 s, because open_clip imports torch."""
    if patient.recipe is None:
        yield Finding("ok", "no recipe named; `pairmill doctor RECIPE` looks for its models")
        return
    from pairmill.catalog.recipe.plan import models_of  # parses predicates: only where a recipe is named

    for name, spec in models_of(patient.recipe).items():
        try:
            for finding in _findings(spec):
                yield Finding(finding.state, f"{name}, {finding.text}", finding.remedy)
        except ModelError as error:
            yield Finding("fail", f"{name}, {error}")


def _findings(spec: str) -> Iterator[Finding]:
    """Yield a finding for a model on this machine or the hub, or one for each endpoint of a model behind servers."""
    if spec.startswith(FILES):
        yield _files(spec)
    elif spec.startswith(PREFIX):
        http = parse_http(spec)
        yield from (_endpoint(http.name, url) for url in http.endpoints)
    else:  # another package's
        content_digest(spec)
        yield Finding("ok", spec)


def _files(spec: str) -> Finding:
    """Return a finding on whether the model's files are on this machine, or a run could download them."""
    if place := on_s3(spec):
        copy, _ = list_folder(spec, *place)
        return Finding("ok", f"{spec}: {'on this machine' if copy.is_dir() else 'the first run copies it'}")
    if _is_cached(spec):
        return Finding("ok", f"{spec}: on this machine")
    flags = [name for name in OFFLINE if os.environ.get(name, "").lower() in ("1", "true", "yes", "on")]
    remedy = "copy the model's folder here and name it in the recipe, or use --models demo"
    if flags:
        return Finding("fail", f"{spec}: not on this machine, and {flags[0]} is set", f"unset {flags[0]}, or {remedy}")
    if not hub_is_reachable():
        return Finding("fail", f"{spec}: not on this machine, and the hub cannot be reached", remedy)
    return Finding("ok", f"the first run downloads {missing_model(spec) or spec}")


def missing_models(recipe: Recipe) -> list[MissingModel]:
    """List the recipe's models that a run would download from the hub."""
    from pairmill.catalog.recipe.plan import models_of

    found = map(missing_model, dict.fromkeys(models_of(recipe).values()))
    return [each for each in found if each]


def is_here(spec: str) -> bool:
    """Return whether the files of a model are on this machine, so that loading it downloads nothing."""
    try:
        return not on_s3(spec) and _is_cached(spec)
    except ModelError:
        return False


def _is_cached(spec: str) -> bool:
    """Return whether a folder or the hub's cache has the model. Raises ModelError if the folder is missing."""
    try:
        with _offline():
            resolve(spec)
    except NotDownloaded:
        return False
    return True


@contextmanager
def _offline() -> Iterator[None]:
    """Restrict the hub's client to its local cache during the ``with`` block."""
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _endpoint(model: str, url: str) -> Finding:
    """Return a finding on whether a server answers and, if it lists its models, serves ``model``."""
    try:
        with urllib.request.urlopen(f"{url}/models", timeout=SECONDS) as answer:
            served = [each["id"] for each in json.load(answer)["data"]]
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return Finding("ok", f"http:{model}: {url} answers and wants a key")
        return Finding("warn", f"http:{model}: {url} answers with status {error.code}", "look at the server's log")
    except (OSError, ValueError) as error:
        trouble = f"http:{model}: {url} does not answer ({getattr(error, 'reason', error)})"
        return Finding("fail", trouble, "start the server, or correct its address")
    except (KeyError, TypeError):
        return Finding("ok", f"http:{model}: {url} answers")
    if model in served:
        return Finding("ok", f"http:{model}: {url} serves it")
    names = ", ".join(served[:3])
    return Finding("fail", f"http:{model}: {url} serves {names} instead", "correct the model's name in the recipe")
