"""Bound an answer by its request: the bytes of its text, and the token counts that the server reports."""

from __future__ import annotations

from dataclasses import dataclass

# A token is at least 1 byte, and no known vocabulary averages 16 bytes per token over a text. So both the bytes and the
# tokens of an answer are at most 16 * max_tokens. Short answers may be one long word, hence the least bound.
BYTES_A_TOKEN, LEAST_BYTES = 16, 256
# The most expensive image known takes 48,169 tokens (gpt-4o-mini, eight tiles). No known model spends more than 131,072
# tokens on reasoning.
MOST_OF_A_PICTURE, MOST_REASONING = 65_536, 131_072


@dataclass(frozen=True)
class Bounds:
    """The bounds of an answer to a request of ``asked_bytes`` bytes that asks for at most ``max_tokens`` tokens."""

    max_tokens: int = 128
    asked_bytes: int = 0

    @property
    def text_bytes(self) -> int:
        """Upper bound of the text in UTF-8 bytes. A longer text shows that the server ignores ``max_tokens``."""
        return max(LEAST_BYTES, BYTES_A_TOKEN * self.max_tokens)

    @property
    def prompt_tokens(self) -> int:
        """Upper bound of believable prompt tokens: one per byte of the request, plus those of one image."""
        return self.asked_bytes + MOST_OF_A_PICTURE

    def tokens(self, reasoning: int) -> int:
        """Return the upper bound of believable answer tokens.

        It includes the ``reasoning`` tokens that the server reports, up to MOST_REASONING.
        """
        return self.text_bytes + min(reasoning, MOST_REASONING)

    def cut(self, text: str) -> str:
        """Truncate a text to the bound, at a whole character."""
        return text.encode()[: self.text_bytes].decode("utf-8", "ignore")
