"""Read what an OpenAI-compatible server answers: a text, a refusal of this request, or a reason to try again."""

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

# What servers say of a prompt that does not fit their model: vLLM, SGLang, OpenAI, llama.cpp, in turn.
TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size)|maximum.{0,20}tokens|longer than|too (long|large|many tokens)|exceeds? the",
    re.IGNORECASE,
)
# Of a 429: the account is empty, which no waiting mends.
NO_MONEY = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
OVERLOADED = frozenset((429, 503, 529))
PASSING = frozenset((408, 409, 425, 500, 502, 504))
WITHHELD = "content_filter"
MOST_SAID, MOST_FINISH = 300, 32
MOST_COUNT = 2**31 - 1  # what a column of tokens holds


Kind = Literal["overload", "renamed", "unreachable", "broken", "late", "fault"]


@dataclass(frozen=True)
class RetryableFailure:
    """An answer that is worth another try. The endpoint wants fewer requests ('overload', and to be left alone for
    ``after`` seconds if it says so) or another name of a setting ('renamed'), nobody is there ('unreachable'), the
    connection broke ('broken') or there was no answer in time ('late'), or one that is none ('fault'). ``discarded``
    tokens were paid for; ``unbelieved`` are reported beyond these and cannot be."""

    why: str
    kind: Kind = "fault"
    after: float = 0.0
    discarded: int = 0
    unbelieved: int = 0

    @property
    def is_strike(self) -> bool:
        """Whether the request itself may be to blame."""
        return self.kind not in ("overload", "renamed", "unreachable")


@dataclass(frozen=True)
class Refused:
    """A request that the server does not take, now or later: a quarantine ``reason``, and what the server said."""

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
    """Read one answer. ``where`` names model and endpoint in errors; ``cleaner`` takes out of all that was said the
    key, which some servers repeat, and ``bounds`` say what an answer may hold. Seconds and retries are left to the
    caller.

    Raises ModelError, with the remedy, for what every request would meet: no right to ask (401, 403), no such model or
    path (404), an empty account (402, or 429 with insufficient_quota), a redirect.
    """
    cleaner = cleaner or Cleaner()
    if status == 200:
        return _completion(body, cleaner, bounds or Bounds())
    said, code = _error(body, cleaner)
    if status in (401, 403):
        raise ModelError(
            f"{where} does not let us ask ({status}: {said}); name the variable that holds its key: "
            "--model NAME:key=VARIABLE"
        )
    if status == 404:
        raise ModelError(
            f"{where} is not there (404: {said}); correct the model's name as the server has it, or the address, which "
            "mostly ends in /v1"
        )
    if status == 402 or (status == 429 and code in NO_MONEY):
        raise ModelError(f"{where}: the account is empty ({status}: {said}); what is finished is committed: run again")
    if 300 <= status < 400:
        to = headers.get("Location", "another address").partition("?")[0].rpartition("@")[2]
        raise ModelError(
            f"{where} redirects ({status}) to {cleaner.line(to, 200)}; write the address of that into the spec"
        )
    if status in OVERLOADED:
        return RetryableFailure(
            f"{status}: {said}", "overload", max(0.0, seconds_until(headers.get("Retry-After", "")))
        )
    if status in PASSING or status >= 500:
        return RetryableFailure(f"{status}: {said}", "fault", max(0.0, seconds_until(headers.get("Retry-After", ""))))
    if WITHHELD in code.split():  # Azure's, as an error of the request: its prompt or picture is the reason
        return Generation("", 0, WITHHELD, 0.0)
    is_long = status == 413 or bool(TOO_LONG.search(said)) or "context_length" in code
    return Refused("too_large" if is_long else "model_error", f"{status}: {said}")


def _completion(body: bytes, cleaner: Cleaner, bounds: Bounds) -> Generation | RetryableFailure | Refused:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return RetryableFailure("an answer that is cut off or no JSON")
    if not isinstance(answer, dict):
        return RetryableFailure("an answer without choices")
    usage = _usage(answer.get("usage"), bounds)
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    message = choice.get("message") if choice else None
    if choice is None or not isinstance(message, dict):
        why = _error(body, cleaner)[0] if "error" in answer else "an answer without choices"
        return RetryableFailure(
            why, discarded=usage.read + usage.made, unbelieved=usage.read_beyond + usage.made_beyond
        )
    refusal, finish = message.get("refusal"), choice.get("finish_reason")
    ended = cleaner.text(finish)[:MOST_FINISH] if finish and isinstance(finish, str) else "stop"
    text = cleaner.text(_text(message.get("content")) or (refusal if isinstance(refusal, str) else "")).strip()
    return _within(bounds, usage, text, "refusal" if refusal else ended)


def _within(bounds: Bounds, usage: _Usage, text: str, finish: str) -> Generation:
    """Make the answer. Of a text that is too long the beginning is kept, as one that was cut, with its fault."""
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
    """The tokens that a server says it read and made, as far as they can be, and those that it reports beyond."""

    read: int
    made: int
    read_beyond: int
    made_beyond: int


def _usage(told: Any, bounds: Bounds) -> _Usage:
    usage = _object(told)
    read, made = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    reasoning = _count(_object(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    read_at_most, made_at_most = bounds.prompt_tokens, bounds.tokens(reasoning)
    return _Usage(
        min(read, read_at_most), min(made, made_at_most), max(0, read - read_at_most), max(0, made - made_at_most)
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    """Return a number of tokens, 0 for what is none: JSON's true is a number to Python, and no column takes it."""
    return min(value, MOST_COUNT) if type(value) is int and value > 0 else 0


def _text(content: Any) -> str:
    """Return an answer's text: a string, null, or a list of parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    return content if isinstance(content, str) else ""


def _error(body: bytes, cleaner: Cleaner) -> tuple[str, str]:
    """Return what a server says went wrong, in one line, and its code."""
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
