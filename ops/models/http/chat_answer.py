"""Parse a response of an OpenAI-compatible server: an answer, a refusal of this request, or a reason to retry."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pairmill.ops.header_number import seconds_until
from pairmill.ops.models.generation import Generation
from pairmill.ops.models.http.answer_cleaner import Cleaner
from pairmill.ops.models.http.bounds import Bounds
from pairmill.ops.models.model_error import ModelError

# Error texts for a prompt that exceeds the model's context: vLLM, SGLang, OpenAI, llama.cpp, in turn.
TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size)|maximum.{0,20}tokens|longer than|too (long|large|many tokens)|exceeds? the",
    re.IGNORECASE,
)
# Error codes of a 429 with an empty account, which a retry cannot fix.
NO_MONEY = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
OVERLOADED = frozenset((429, 503, 529))
PASSING = frozenset((408, 409, 425, 500, 502, 504))
WITHHELD = "content_filter"
MOST_SAID, MOST_FINISH = 300, 32
MOST_COUNT = 2**31 - 1  # largest value of a 32-bit token column


Kind = Literal["overload", "renamed", "unreachable", "broken", "late", "fault"]


@dataclass(frozen=True)
class RetryableFailure:
    """A response that is worth a retry.

    Attributes:
        why: What went wrong, in one line.
        kind: 'overload' (the endpoint wants fewer requests), 'renamed' (it wants another name of a setting),
            'unreachable' (no connection), 'broken' (the connection broke), 'late' (timeout) or 'fault' (an invalid or
            failed response).
        after: Seconds that the endpoint asks to wait; 0 if it does not say.
        discarded: Tokens of this response, which were paid for.
        unbelieved: Tokens that the server reports beyond the possible maximum.
    """

    why: str
    kind: Kind = "fault"
    after: float = 0.0
    discarded: int = 0
    unbelieved: int = 0

    @property
    def is_strike(self) -> bool:
        """Whether the request itself may be the cause."""
        return self.kind not in ("overload", "renamed", "unreachable")


@dataclass(frozen=True)
class Refused:
    """A request that the server rejects for good: a quarantine ``reason``, and the server's message."""

    reason: str
    said: str


def read(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    where: str,
    cleaner: Cleaner | None = None,
    bounds: Bounds | None = None,
) -> Generation | RetryableFailure | Refused:
    """Parse one response. The caller sets seconds and retries.

    Args:
        status: HTTP status.
        headers: Response headers.
        body: Response body.
        where: Name of model and endpoint, for errors.
        cleaner: Removes the key, which some servers repeat, from all texts of the response.
        bounds: Limits of a plausible answer.

    Raises:
        ModelError: Every request would fail alike: no permission (401, 403), no such model or path (404), an empty
            account (402, or 429 with insufficient_quota), a redirect. The message names the remedy.
    """
    cleaner = cleaner or Cleaner()
    if status == 200:
        return _completion(body, cleaner, bounds or Bounds())
    said, code = _error(body, cleaner)
    if status in (401, 403):
        raise ModelError(
            f"{where} refuses the request ({status}: {said}); name the variable that holds its key: "
            "--model NAME:key=VARIABLE"
        )
    if status == 404:
        raise ModelError(
            f"{where} does not exist (404: {said}); correct the model's name, or the address, which usually ends in /v1"
        )
    if status == 402 or (status == 429 and code in NO_MONEY):
        raise ModelError(f"{where}: the account is empty ({status}: {said}); what is finished is committed: run again")
    if 300 <= status < 400:
        to = headers.get("Location", "another address").partition("?")[0].rpartition("@")[2]
        raise ModelError(f"{where} redirects ({status}) to {cleaner.line(to, 200)}; write that address into the spec")
    if status in OVERLOADED:
        return RetryableFailure(
            f"{status}: {said}", "overload", max(0.0, seconds_until(headers.get("Retry-After", "")))
        )
    if status in PASSING or status >= 500:
        return RetryableFailure(f"{status}: {said}", "fault", max(0.0, seconds_until(headers.get("Retry-After", ""))))
    if WITHHELD in code.split():  # Azure reports a filtered prompt or image as an error
        return Generation("", 0, WITHHELD, 0.0)
    is_long = status == 413 or bool(TOO_LONG.search(said)) or "context_length" in code
    return Refused("too_large" if is_long else "model_error", f"{status}: {said}")


def _completion(body: bytes, cleaner: Cleaner, bounds: Bounds) -> Generation | RetryableFailure | Refused:
    """Parse the body of a 200 response."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return RetryableFailure("the response is truncated or not JSON")
    if not isinstance(answer, dict):
        return RetryableFailure("the response has no choices")
    usage = _usage(answer.get("usage"), bounds)
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    message = choice.get("message") if choice else None
    if choice is None or not isinstance(message, dict):
        why = _error(body, cleaner)[0] if "error" in answer else "the response has no choices"
        return RetryableFailure(
            why, discarded=usage.read + usage.made, unbelieved=usage.read_beyond + usage.made_beyond
        )
    refusal, finish = message.get("refusal"), choice.get("finish_reason")
    ended = cleaner.text(finish)[:MOST_FINISH] if finish and isinstance(finish, str) else "stop"
    text = cleaner.text(_text(message.get("content")) or (refusal if isinstance(refusal, str) else "")).strip()
    return _within(bounds, usage, text, "refusal" if refusal else ended)


def _within(bounds: Bounds, usage: _Usage, text: str, finish: str) -> Generation:
    """Build the answer; truncate a text that is too long, with finish 'length' and an error."""
    error = detail = ""
    if (size := len(text.encode())) > bounds.text_bytes:
        text, finish, error = bounds.cut(text), "length", "model_error"
        detail = (
            f"the server sent {size:,} bytes of text where {bounds.max_tokens:,} tokens were asked for at most; the "
            f"first {bounds.text_bytes:,} are kept"
        )
    return Generation(
        text,
        usage.made,
        finish,
        0.0,
        error,
        detail,
        prompt_tokens=usage.read,
        unbelieved_prompt_tokens=usage.read_beyond,
        unbelieved_tokens=usage.made_beyond,
    )


@dataclass(frozen=True)
class _Usage:
    """Token counts that a server reports: the plausible part of prompt and answer, and the part beyond it."""

    read: int
    made: int
    read_beyond: int
    made_beyond: int


def _usage(told: Any, bounds: Bounds) -> _Usage:
    """Parse the ``usage`` object of a response."""
    usage = _object(told)
    read, made = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    reasoning = _count(_object(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    read_at_most, made_at_most = bounds.prompt_tokens, bounds.tokens(reasoning)
    return _Usage(
        min(read, read_at_most), min(made, made_at_most), max(0, read - read_at_most), max(0, made - made_at_most)
    )


def _object(value: Any) -> dict[str, Any]:
    """Return the value if it is a JSON object, else {}."""
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    """Return a token count, 0 for any other value.

    JSON's true is excluded: it is an int in Python, but no column accepts it.
    """
    return min(value, MOST_COUNT) if type(value) is int and value > 0 else 0


def _text(content: Any) -> str:
    """Return an answer's text from a string, null, or a list of parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    return content if isinstance(content, str) else ""


def _error(body: bytes, cleaner: Cleaner) -> tuple[str, str]:
    """Return the server's error message in one line, and its error code."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = body[:MOST_SAID].decode("utf-8", "replace")
    code = ""
    if isinstance(answer, dict):
        found = answer.get("error", answer)
        if isinstance(found, dict):
            code = " ".join(str(found.get(name) or "") for name in ("code", "type")).strip()
            found = found.get("message") or found.get("detail") or found
        answer = found if isinstance(found, str) else json.dumps(found)
    line = cleaner.line(str(answer), MOST_SAID)
    codes = next((each for each in NO_MONEY if each in code), code)
    return line or "without a word", codes
