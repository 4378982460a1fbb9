"""Encode requests to an OpenAI-compatible server, and parse its responses: answers, refusals, reasons to retry."""

import base64
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import simplejpeg
from PIL import Image

from pairmill.catalog.terms.controls import printable
from pairmill.ops.header_number import seconds_until
from pairmill.ops.models.generation import Generation, finish_name
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
KEY = "(key)"
# Placeholder keys for servers without a key ("x", "EMPTY") are no secret and occur in other words, so shorter keys than
# these are not removed. In generated texts the bound is higher, since a shorter key may be a word of the text.
SHORTEST_KEY, SHORTEST_IN_TEXTS = 6, 16
# Invisible characters that may stand between the characters of a key: soft hyphen, joiners, marks of direction,
# variation selectors, tags; and the backslash that JSON puts before a quotation mark.
_UNSEEN = (
    "[\\\\\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f]*"
)
# A token is at least 1 byte, and no known vocabulary averages 16 bytes per token over a text. So both the bytes and the
# tokens of an answer are at most 16 * max_tokens. Short answers may be one long word, hence the least bound.
BYTES_A_TOKEN, LEAST_BYTES = 16, 256
# The costliest image known takes 48,169 tokens (gpt-4o-mini, eight tiles). No known model reasons in more than 131,072.
MOST_OF_A_PICTURE, MOST_REASONING = 65_536, 131_072


def encode_picture(picture: np.ndarray, encoding: str) -> tuple[str, bytes]:
    """Encode an image (h, w, 3) uint8 RGB as 'png' or 'jpeg-QUALITY'; return (media type, bytes)."""
    if encoding == "png":
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "PNG", compress_level=1)
        return "image/png", file.getvalue()
    quality = int(encoding.removeprefix("jpeg-"))
    return "image/jpeg", simplejpeg.encode_jpeg(np.ascontiguousarray(picture), quality, "RGB", "420")


def messages(picture: np.ndarray | None, prompt: str, encoding: str) -> bytes:
    """Return the JSON of a list with one user message: ``prompt``, and the image if there is one."""
    content: list[dict] | str = prompt
    if picture is not None:
        kind, data = encode_picture(picture, encoding)
        url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": prompt}]
    return json.dumps([{"role": "user", "content": content}], ensure_ascii=False).encode()


def request(model: str, messages: bytes, max_tokens: int, limit: str = "max_tokens") -> bytes:
    """Return the JSON body of a chat request. ``limit`` is the server's name of the token limit."""
    head = json.dumps({"model": model, limit: max_tokens, "temperature": 0, "stream": False}, ensure_ascii=False)
    return head[:-1].encode() + b', "messages": ' + messages + b"}"


class Cleaner:
    """Remove control characters, and the endpoint's ``key`` ('' for none), from texts of its responses."""

    def __init__(self, key: str = "") -> None:
        found = re.compile(_UNSEEN.join(map(re.escape, key)), re.IGNORECASE) if len(key) >= SHORTEST_KEY else None
        self._in_lines = found
        self._in_texts = found if len(key) >= SHORTEST_IN_TEXTS else None

    def text(self, said: str) -> str:
        """Clean a generated text and return it; line ends stay."""
        return _without(self._in_texts, said)

    def line(self, said: str, most: int) -> str:
        """Clean an error, a header or a name, and return it as one line of at most ``most`` characters."""
        return " ".join(_without(self._in_lines, said).split())[:most]


def _without(key: re.Pattern[str] | None, said: str) -> str:
    """Remove the key, control codes and unpaired surrogates."""
    # JSON may hold unpaired surrogates (a token limit splits emoji), which no table accepts.
    whole = printable(said.encode("utf-8", "replace").decode())
    return key.sub(KEY, whole) if key else whole


@dataclass(frozen=True)
class Bounds:
    """Plausible bounds of an answer to a request of ``asked_bytes`` bytes for at most ``max_tokens`` tokens."""

    max_tokens: int = 128
    asked_bytes: int = 0

    @property
    def text_bytes(self) -> int:
        """Upper bound of the answer's UTF-8 bytes. A longer text shows that the server ignores ``max_tokens``."""
        return max(LEAST_BYTES, BYTES_A_TOKEN * self.max_tokens)

    @property
    def prompt_tokens(self) -> int:
        """Upper bound of plausible prompt tokens: one per byte of the request, plus those of one image."""
        return self.asked_bytes + MOST_OF_A_PICTURE

    def tokens(self, reasoning: int) -> int:
        """Return the upper bound of plausible answer tokens.

        It includes the ``reasoning`` tokens that the server reports, up to MOST_REASONING.
        """
        return self.text_bytes + min(reasoning, MOST_REASONING)

    def cut(self, text: str) -> str:
        """Truncate a text to ``text_bytes`` bytes, at a whole character."""
        return text.encode()[: self.text_bytes].decode("utf-8", "ignore")


@dataclass(frozen=True)
class RetryableFailure:
    """A failed response that is worth a retry; ``why`` is the reason in one line.

    ``kind`` is 'overload' (the endpoint wants fewer requests), 'renamed' (it names a setting otherwise), 'unreachable'
    (no connection), 'broken' (it broke), 'late' (timeout) or 'fault' (an invalid or failed response).
    """

    why: str
    kind: Kind = "fault"
    after: float = 0.0  # seconds that the endpoint asks to wait; 0 if it does not say
    discarded: int = 0  # tokens of this response, which were paid for
    unbelieved: int = 0  # tokens that the server reports beyond the possible maximum

    @property
    def is_strike(self) -> bool:
        """Whether the request itself may be the cause of the failure."""
        return self.kind not in ("overload", "renamed", "unreachable")


@dataclass(frozen=True)
class Refused:
    """A request that the server rejects permanently: a quarantine ``reason``, and the server's message ``said``."""

    reason: str
    said: str


Outcome = Generation | RetryableFailure | Refused


def read(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    where: str,
    cleaner: Cleaner | None = None,
    bounds: Bounds | None = None,
) -> Outcome:
    """Parse one HTTP response into an answer, a failure to retry, or a refusal. The caller sets seconds and retries.

    ``where`` names model and endpoint for errors. ``cleaner`` removes the key, which some servers repeat, from all
    texts of the response. Raises ModelError if every request would fail alike: no permission (401, 403), no such model
    or path (404), an empty account (402, or 429 with insufficient_quota), a redirect.
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
    if status in OVERLOADED or status in PASSING or status >= 500:
        after = max(0.0, seconds_until(headers.get("Retry-After", "")))
        return RetryableFailure(f"{status}: {said}", "overload" if status in OVERLOADED else "fault", after)
    if WITHHELD in code.split():  # Azure reports a filtered prompt or image as an error
        return Generation("", 0, WITHHELD, 0.0)
    is_long = status == 413 or bool(TOO_LONG.search(said)) or "context_length" in code
    return Refused("too_large" if is_long else "model_error", f"{status}: {said}")


def _completion(body: bytes, cleaner: Cleaner, bounds: Bounds) -> Outcome:
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
        spent = usage["prompt_tokens"] + usage["n_tokens"]
        excess = usage["unbelieved_prompt_tokens"] + usage["unbelieved_tokens"]
        return RetryableFailure(why, discarded=spent, unbelieved=excess)
    refusal, finish = message.get("refusal"), choice.get("finish_reason")
    ended = finish_name(cleaner.text(finish)[:MOST_FINISH]) if finish and isinstance(finish, str) else "stop"
    text = cleaner.text(_text(message.get("content")) or (refusal if isinstance(refusal, str) else "")).strip()
    return _within(bounds, usage, text, "refusal" if refusal else ended)


def _within(bounds: Bounds, usage: dict[str, int], text: str, finish: str) -> Generation:
    """Build the answer; truncate a text that is too long, with finish 'length' and an error."""
    error = detail = ""
    if (size := len(text.encode())) > bounds.text_bytes:
        text, finish, error = bounds.cut(text), "length", "model_error"
        detail = (
            f"the server sent {size:,} bytes of text where {bounds.max_tokens:,} tokens were asked for at most; the "
            f"first {bounds.text_bytes:,} are kept"
        )
    return Generation(text, finish=finish, seconds=0.0, error=error, detail=detail, **usage)


def _usage(told: Any, bounds: Bounds) -> dict[str, int]:
    """Return the token counts of a response, plausible ones and excess, as fields of a `Generation`."""
    usage = _object(told)
    read, made = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    reasoning = _count(_object(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    most_read, most_made = bounds.prompt_tokens, bounds.tokens(reasoning)
    return {
        "prompt_tokens": min(read, most_read),
        "n_tokens": min(made, most_made),
        "unbelieved_prompt_tokens": max(0, read - most_read),
        "unbelieved_tokens": max(0, made - most_made),
    }


def _object(value: Any) -> dict[str, Any]:
    """Return the value if it is a JSON object, else {}."""
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    """Return a token count, 0 for any other value; JSON's true is an int in Python."""
    return min(value, MOST_COUNT) if type(value) is int and value > 0 else 0


def _text(content: Any) -> str:
    """Return an answer's text from a string, null, or a list of parts, without parts of reasoning."""
    if isinstance(content, list):
        parts = map(_object, content)
        texts = (part.get("text") for part in parts if part.get("type", "text") in ("text", "output_text"))
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _error(body: bytes, cleaner: Cleaner) -> tuple[str, str]:
    """Return the server's error message in one line, and its error code."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = body[:MOST_SAID].decode("utf-8", "replace")
    code = ""
    if isinstance(answer, dict):
        if isinstance(found := answer.get("error", answer), dict):
            code = " ".join(str(found.get(name) or "") for name in ("code", "type")).strip()
            found = found.get("message") or found.get("detail") or found
        answer = found if isinstance(found, str) else json.dumps(found)
    line = cleaner.line(str(answer), MOST_SAID)
    codes = next((each for each in NO_MONEY if each in code), code)
    return line or "without a word", codes
