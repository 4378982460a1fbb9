"""Parse the spec of a model behind OpenAI-compatible endpoints: http:NAME@https://host:8000/v1,https://host2/v1."""

import hashlib
from dataclasses import dataclass
from urllib.parse import urlsplit

from pairmill.ops.models.model_error import ModelError

PREFIX = "http:"
FORM = "'http:NAME@https://host:8000/v1' (more endpoints of the same model behind commas)"


@dataclass(frozen=True)
class HttpSpec:
    """Parsed spec of a model: its ``name`` on the servers, and its endpoints (base URLs without a trailing slash)."""

    name: str
    endpoints: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The model's identity, 32 hex digits of a hash of its name alone: endpoints do not change answers."""
        return hashlib.sha256(f"{PREFIX}{self.name}".encode()).hexdigest()[:32]


def http_digest(spec: str) -> str:
    """Return the model's identity, 32 hex digits, for ``spec``. Raises ModelError as `parse_http`."""
    return parse_http(spec).digest


def parse_http(spec: str) -> HttpSpec:
    """Parse a spec 'http:NAME@URL,URL'. Raises ModelError if it is malformed or a URL has a user, password or query."""
    name, at, places = spec.removeprefix(PREFIX).partition("@http")
    if not spec.startswith(PREFIX) or not name or not at:
        shown = spec.partition("@")[0]  # the rest may contain a password
        raise ModelError(f"model '{shown}': no name and endpoints; write {FORM}")
    endpoints = tuple(dict.fromkeys(place.strip().rstrip("/") for place in f"http{places}".split(",")))
    for place in endpoints:
        try:
            parts = urlsplit(place)
            is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            (parts.hostname or "").encode("idna")
        except ValueError:  # includes UnicodeError, for a host name that IDNA rejects
            is_whole, parts = False, urlsplit("")
        if not is_whole or parts.fragment:
            shown = place.rpartition("@")[2][:80]  # without user and password
            raise ModelError(f"model 'http:{name}': '{shown}' is no http(s) address; write {FORM}")
        if parts.username is not None or parts.query:
            raise ModelError(
                f"model 'http:{name}': an endpoint's address holds a user, password or query, which recipes and lakes "
                "would keep; name the variable that holds the key instead: --model NAME:key=VARIABLE"
            )
    return HttpSpec(name, endpoints)
