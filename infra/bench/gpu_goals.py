"""List the targets of the GPU benches.

They stand against figures that others report. NeMo Curator's nightly floor for CLIP is 112 img/s. BridgeTower trains on
one H100 with 0, 1 and 2 data loaders at 336, 580 and 602 img/s (Hugging Face and Habana). SGLang's pull request 36411
tells 69 requests/s of a smaller Qwen3-VL on an H100 (vLLM: 62). Leonardo AI caption by CogVLM-17B on a GH200 at 2.29
img/s and 245 tokens/s (1,225 visual tokens, some 107 of an answer, batches of 32).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """Target of one measure, ``what`` of ``row``.

    ``least`` is the value that it must reach, ``share`` what share of its bound on the card that measures it. Both
    None: no target.
    """

    row: str
    what: str
    unit: str
    least: float | None = None
    share: float | None = None

    def target(self) -> str:
        """Return what the measure must reach; '' without a target."""
        if self.share is not None:
            return f"{self.share:g} of its bound"
        return "" if self.least is None else f"{self.least:g} {self.unit}"

    def is_met(self, value: float | None, share: float | None) -> bool | None:
        """Return whether a measure reaches its target; None if it has none, or was not taken."""
        pairs = [(value, self.least), (share, self.share)]
        reached = [seen >= target for seen, target in pairs if seen is not None and target is not None]
        return all(reached) if reached else None


JPEG = "captions from JPEG bytes"
GOALS = (
    Goal("run_smolvlm", JPEG, "texts/s", share=0.55),
    Goal("run_qwen", JPEG, "texts/s", share=0.55),
    Goal("run_internvl", JPEG, "texts/s", share=0.4),
    Goal("run_fuser", "fused texts", "texts/s", share=0.4),
    Goal("clip_eva", "EVA02-E-14-plus from JPEG bytes", "img/s", share=0.45),
    Goal("clip_stage", "stage / model", "of 1", 0.95),
    Goal("caption_7b", "captions", "img/s", share=0.43),
    Goal("caption_7b", "from JPEG bytes / model", "of 1", 0.95),
    Goal("caption_7b_plain", "ours / plain generate", "times", 1.4),
    Goal("caption_17b_256", "captions", "img/s", share=0.46),
    Goal("caption_17b_256", "tokens of captions", "tokens/s", share=0.46),
    Goal("caption_17b_1225", "captions", "img/s", share=0.5),
    Goal("memory", "rows answered of a batch that does not fit", "of 1", 1),
    Goal("memory", "rows with the error out_of_memory where none fits", "of 1", 1),
    Goal("broken", "BrokenDevice raised after a device-side assert", "of 1", 1),
    Goal("repeat", "smallest cosine of a repeat at another batch", "cosine", 0.9999),
    Goal("repeat", "largest difference of scalars is within 1e-3", "of 1", 1),
)


def goal(row: str, what: str, unit: str) -> Goal:
    """Return the target of a measure, or a Goal without a target."""
    return next((each for each in GOALS if (each.row, each.what) == (row, what)), Goal(row, what, unit))
