"""Bound what one answer may hold, by what was asked for: bytes of text, and the tokens that a server says it took."""

from __future__ import annotations

from dataclasses import dataclass

# A token is a byte at least, and of no known vocabulary 16 bytes on average over a text: bytes and tokens of an answer
# have one bound. A short answer may be a long word.
BYTES_A_TOKEN, LEAST_BYTES = 16, 256
# The dearest picture known takes 48,169 tokens (gpt-4o-mini, eight tiles); no known model thinks longer than 131,072.
MOST_OF_A_PICTURE, MOST_REASONING = 65_536, 131_072


@dataclass(frozen=True)
class Bounds:
    """What the answer to a request of ``asked_bytes`` may hold that asks for ``max_tokens`` at most."""

    max_tokens: int = 128
    asked_bytes: int = 0

    @property
    def text_bytes(self) -> int:
        """Bytes of text, in UTF-8, beyond which a server does not keep to ``max_tokens``."""
        return max(LEAST_BYTES, BYTES_A_TOKEN * self.max_tokens)

    @property
    def prompt_tokens(self) -> int:
        """Tokens read that can be believed: a byte of the request each, and a picture's."""
        return self.asked_bytes + MOST_OF_A_PICTURE

    def tokens(self, reasoning: int) -> int:
        """Tokens made that can be believed, ``reasoning`` tokens, as the server counts them, included."""
        return self.text_bytes + min(reasoning, MOST_REASONING)

    def cut(self, text: str) -> str:
        """Return a text's beginning within the bound, in whole characters."""
        return text.encode()[: self.text_bytes].decode("utf-8", "ignore")
