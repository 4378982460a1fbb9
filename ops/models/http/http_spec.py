"""Read the spec of a model behind OpenAI-compatible endpoints: http:NAME@https://host:8000/v1,https://host2/v1."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from urllib.parse import urlsplit

from pairmill.ops.models.model_error import ModelError

PREFIX = "http:"
FORM = "'http:NAME@https://host:8000/v1' (more endpoints of the same model behind commas)"


@dataclass(frozen=True)
class HttpSpec:
    """A model's ``name``, as its servers call it, and the endpoints (base addresses without a slash at their end)."""

    name: str
    endpoints: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The model's identity, 32 hex digits: its name alone. Where it is served changes no answer."""
        return hashlib.sha256(f"{PREFIX}{self.name}".encode()).hexdigest()[:32]


def parse_http(spec: str) -> HttpSpec:
    """Read ``spec``. Raises ModelError for a form that it has not, and for an address with a user or a query."""
    name, at, places = spec.removeprefix(PREFIX).partition("@http")
    if not spec.startswith(PREFIX) or not name or not at:
        shown = spec.partition("@")[0]  # behind it there may be a password
        raise ModelError(f"model '{shown}': no name and endpoints; write {FORM}")
    endpoints = tuple(dict.fromkeys(place.strip().rstrip("/") for place in f"http{places}".split(",")))
    for place in endpoints:
        try:
            parts = urlsplit(place)
            is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            (parts.hostname or "").encode("idna")
        except ValueError:  # UnicodeError, a host that no resolver takes, is one
            is_whole, parts = False, urlsplit("")
        if not is_whole or parts.fragment:
            shown = place.rpartition("@")[2][:80]  # without a user and password
            raise ModelError(f"model 'http:{name}': '{shown}' is no http(s) address; write {FORM}")
        if parts.username is not None or parts.query:
            raise ModelError(
                f"model 'http:{name}': an endpoint's address holds a user, password or query, which recipes and lakes "
                "would keep; name the variable that holds the key instead: --model NAME:key=VARIABLE"
            )
    return HttpSpec(name, endpoints)
