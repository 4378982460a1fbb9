"""Remove the reasoning that a model writes before its answer."""

import re

# Marks of reasoning: <think> (Qwen, DeepSeek, GLM), <seed:think> (Seed-OSS), [THINK] (Magistral), ◁think▷ (Kimi-VL),
# <|begin_of_thought|> (Sky-T1), <unused94> (MedGemma), <|channel|>analysis (gpt-oss). A mark right after a quotation
# mark is a text that the image shows.
_PREFIX = r"(?:seed:|\w{1,12}:)?"
_THOUGHT = r"(?:think(?:ing)?|thoughts?)"
_PART = r"(?:reason(?:ing)?|reflection|analysis|scratchpad|summary)"
_QUOTED = r"(?<![\"'“‘«`])"
_WRITTEN = rf"(?:<{_PREFIX}{_THOUGHT}(?:\s[^<>]{{0,80}})?>|&lt;{_PREFIX}{_THOUGHT}&gt;|\[think\])"
_TOKEN = (
    rf"(?:◁{_THOUGHT}▷|<\|(?:begin_of_)?(?:{_THOUGHT}|{_PART})\|>|<unused94>|<\|channel\|>\s*(?:analysis|commentary))"
)
_OPENED = re.compile(rf"{_QUOTED}(?:{_WRITTEN}|{_TOKEN})", re.IGNORECASE)
# The written marks can also be words that an image shows, so one without its closing mark must begin a line.
_UNCLOSED = re.compile(rf"^[ \t]*{_WRITTEN}|{_QUOTED}{_TOKEN}", re.IGNORECASE | re.MULTILINE)
_CLOSED = re.compile(
    rf"{_QUOTED}(?:</{_PREFIX}{_THOUGHT}\s*>|&lt;/{_PREFIX}{_THOUGHT}&gt;|\[/think\]|◁/{_THOUGHT}▷"
    rf"|<\|(?:end_of_|/)(?:{_THOUGHT}|{_PART})\|>|<unused95>|<\|channel\|>\s*final\s*<\|message\|>)",
    re.IGNORECASE,
)
# <SUMMARY> to <REASONING> (LLaVA-CoT), <analysis>, <scratchpad>: ordinary words, so only at the start of a text.
_PART_OPENED = re.compile(rf"\s*<{_PREFIX}{_PART}(?:\s[^<>]{{0,80}})?>", re.IGNORECASE)
_PART_CLOSED = re.compile(rf"{_QUOTED}</{_PREFIX}{_PART}\s*>", re.IGNORECASE)
# Marks of the answer itself, which is between them: <answer>, <CAPTION>, <|begin_of_box|> (GLM), <|begin_of_solution|>.
_ANSWER = r"(?:answer|caption|conclusion|final|output|response|box|solution)"
_FRAME = re.compile(
    rf"^(?:<{_ANSWER}>|<\|begin_of_{_ANSWER}\|>)|(?:</{_ANSWER}>|<\|end_of_{_ANSWER}\|>|<\|(?:end|return)\|>)$",
    re.IGNORECASE,
)


def without_reasoning(text: str) -> str:
    """Return a generated text without the model's reasoning; '' if it ends before the answer begins.

    The answer is the text after the last closing mark, with or without an opening one; if that is empty, the text
    before the first opening mark. A text without marks is returned unchanged.
    """
    answer, closed = _after_last(_CLOSED, text)
    if closed and not answer.strip():
        opened = _OPENED.search(text)
        answer = text[: opened.start()] if opened else ""
    elif opened := (_OPENED if closed else _UNCLOSED).search(answer):
        answer = answer[: opened.start()]
    if _PART_OPENED.match(answer):
        answer, closed = _after_last(_PART_CLOSED, answer)
        answer = answer if closed else ""
    return text if answer == text else _FRAME.sub("", answer.strip()).strip()


def _after_last(mark: re.Pattern[str], text: str) -> tuple[str, bool]:
    """Return (text after the last ``mark``, True), or (the whole text, False) without a mark."""
    ends = [found.end() for found in mark.finditer(text)]
    return (text[ends[-1] :], True) if ends else (text, False)
