"""Declare the backends of generative models, each by the prefix of its model specs: Pairmill's and other packages'."""

import re
from dataclasses import dataclass, replace
from functools import cache

from pairmill.catalog.terms.declared import foreign
from pairmill.catalog.terms.error import PairmillError

GROUP = "pairmill.backends"
# Prefixes of models that generate no text.
OTHER_PREFIXES = ("open_clip:", "spacy:")
_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,31}:")
_IN_PROCESS = "pairmill.ops.models.backends"
_BEHIND_ENDPOINTS = "pairmill.ops.models.http.http_model"


@dataclass(frozen=True)
class Backend:
    """A backend of generative models. Functions are named as 'MODULE:FUNCTION' and imported at their first use."""

    prefix: str  # beginning of its model specs, with the colon: 'hf:'
    # function that returns the model of a captioner for (spec, precision, batch_size, encoding), an `Answering` of
    # ops/models/generation.py: an `HttpModel` for a model behind endpoints
    captioner: str
    # function that returns the model that fuses texts for (spec, precision, batch_size); '' if it fuses none
    fuser: str = ""
    sees: str = ""  # function that returns whether the model of a spec accepts images; '' if all do
    # function that returns 32 hex digits of the content of a spec's model; '' to hash files, which only 'hf:' finds
    digest: str = ""
    endpoints: bool = False  # whether servers run the model and may bill its tokens
    package: str = "pairmill"  # the package that declares it
    form: str = ""  # how its specs are written, for messages: 'hf:NAME_OR_FOLDER'; '' for the prefix and NAME
    # Third-party modules that workers of its models import and that the fork server may import before forking: their
    # import starts no thread and touches no GPU
    libraries: tuple[str, ...] = ()


OWN = (
    Backend(
        "hf:",
        captioner=f"{_IN_PROCESS}:hf_captioner",
        fuser=f"{_IN_PROCESS}:hf_fuser",
        sees="pairmill.ops.models.model_digest:is_vision_language",
        form="hf:NAME_OR_FOLDER",
        libraries=(
            "transformers.cache_utils",
            "transformers.models.auto.modeling_auto",
            "transformers.models.auto.processing_auto",
            "transformers.models.auto.tokenization_auto",
        ),
    ),
    Backend(
        "http:",
        captioner=f"{_BEHIND_ENDPOINTS}:http_captioner",
        fuser=f"{_BEHIND_ENDPOINTS}:http_fuser",
        digest="pairmill.ops.models.http.http_spec:http_digest",
        endpoints=True,
        form="http:NAME@https://host:8000/v1",
    ),
    Backend(
        "timm:",
        captioner="pairmill.ops.models.vision_language.class_captioner:class_captioner",
        digest="pairmill.ops.models.vision_language.class_captioner:class_digest",
        form="timm:FOLDER",
    ),
)


@cache
def declared_backends() -> dict[str, Backend]:
    """Return prefix -> backend for all declared backends, Pairmill's own first.

    Raises PairmillError if a package's backend cannot be imported or is invalid, or two declare one prefix.
    """
    found = {backend.prefix: backend for backend in OWN}
    for package, backend in foreign(GROUP, "backend", _as_backend):
        if backend.prefix in found or backend.prefix in OTHER_PREFIXES:
            other = found[backend.prefix].package if backend.prefix in found else "pairmill"
            raise PairmillError(
                f"the packages '{package}' and '{other}' both declare the prefix '{backend.prefix}' of models. "
                "Uninstall one."
            )
        found[backend.prefix] = replace(backend, package=package)
    return found


def backend_of(spec: str) -> Backend | None:
    """Return the backend whose prefix model spec ``spec`` has; None if no backend has it."""
    return declared_backends().get(spec.partition(":")[0] + ":")


def forms(*others: str) -> str:
    """Return how model specs are written, for messages: ``others``, then the forms of all backends, joined by 'or'."""
    declared = (backend.form or f"{backend.prefix}NAME" for backend in declared_backends().values())
    *all_but_last, last = (*others, *declared)
    return f"{', '.join(all_but_last)} or {last}"


def _as_backend(loaded: object, value: str) -> Backend:
    """Return a loaded object that is a Backend of another package. Raise ValueError for any other."""
    if not isinstance(loaded, Backend):
        raise ValueError(f"{value} is no catalog.terms.backend.Backend")
    if not _PREFIX.fullmatch(loaded.prefix):
        raise ValueError(f"'{loaded.prefix}' is no prefix of letters, digits and underscores with a colon behind")
    if not loaded.captioner or not loaded.digest:
        raise ValueError(f"its backend '{loaded.prefix}' names no `captioner`, or no `digest` of a model's content")
    return loaded
