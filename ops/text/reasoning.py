"""Separate a model's answer from the reasoning that it writes before it."""

import re

# Marks of reasoning: <think> (Qwen, DeepSeek, GLM), <seed:think> (Seed-OSS), [THINK] (Magistral), ◁think▷ (Kimi-VL),
# <|begin_of_thought|> (Sky-T1), <unused94> (MedGemma), <|channel|>analysis (gpt-oss); <SUMMARY> to <REASONING>
# (LLaVA-CoT). A mark right after a quotation mark is a text that the image shows.
_NAME = r"(?:seed:|\w{1,12}:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|analysis|scratchpad|summary)"
_QUOTED = r"(?<![\"'“‘«`])"
_OPENED = re.compile(
    rf"{_QUOTED}(?:<{_NAME}(?:\s[^<>]{{0,80}})?>|&lt;{_NAME}&gt;|\[{_NAME}\]|◁{_NAME}▷|<\|(?:begin_of_)?{_NAME}\|>"
    r"|<unused94>|<\|channel\|>\s*(?:analysis|commentary))",
    re.IGNORECASE,
)
_CLOSED = re.compile(
    rf"{_QUOTED}(?:</{_NAME}\s*>|&lt;/{_NAME}&gt;|\[/{_NAME}\]|◁/{_NAME}▷|<\|(?:end_of_|/){_NAME}\|>"
    r"|<unused95>|<\|channel\|>\s*final\s*<\|message\|>)",
    re.IGNORECASE,
)
# Marks of the answer itself, which is between them: <answer>, <CAPTION>, <|begin_of_box|> (GLM), <|begin_of_solution|>.
_ANSWER = r"(?:answer|caption|conclusion|final|output|response|box|solution)"
_FRAME = re.compile(
    rf"^(?:<{_ANSWER}>|<\|begin_of_{_ANSWER}\|>)\s*|\s*(?:</{_ANSWER}>|<\|end_of_{_ANSWER}\|>|<\|(?:end|return)\|>)$",
    re.IGNORECASE,
)


def without_reasoning(text: str) -> str:
    """Return a generated text without the model's reasoning; '' if it ends before the answer begins.

    The answer is what follows the last closing mark, with or without an opening one; if nothing does, what precedes the
    first opening mark. A text without marks is returned as it is.
    """
    ends = [found.end() for found in _CLOSED.finditer(text)]
    answer = text[ends[-1] :] if ends else text
    opened = _OPENED.search(answer) or (None if answer.strip() else _OPENED.search(text))
    if opened:
        answer = opened.string[: opened.start()]
    return text if answer == text else _FRAME.sub("", answer.strip())
