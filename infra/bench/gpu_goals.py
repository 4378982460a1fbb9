"""List the targets of the GPU benches and the figures that others report, to be shown beside the measurements.

Sources: NeMo Curator's nightly floors; BridgeTower's training on one H100 by data loaders (Hugging Face and Habana);
SGLang's pull request 36411, requests a second of a smaller Qwen3-VL; Leonardo AI's own account of captioning with
CogVLM-17B on a GH200 (1,225 visual tokens, some 107 of an answer, batches of 32).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """Target of one measure, ``what`` of ``row``.

    ``least`` is the value that it must reach, ``share`` what share of its bound on the card that measures it; None: no
    target.
    """

    row: str
    what: str
    unit: str
    reference: str = ""
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


LEONARDO = "CogVLM-17B on GH200 at 1,225 visual tokens: 2.29 img/s, 245 tokens/s"
SERVED = "SGLang 69, vLLM 62 requests/s on H100, a smaller model"
LOADERS = "NeMo's floor 112 img/s; BridgeTower on H100 with 0, 1, 2 loaders: 336, 580, 602"
JPEG = "captions from JPEG bytes"
GOALS = (
    Goal("run_smolvlm", JPEG, "texts/s", "the captioner of `30m`, one tile", share=0.55),
    Goal("run_qwen", JPEG, "texts/s", "Qwen2.5-VL-7B at mixed sizes", share=0.55),
    Goal("run_internvl", JPEG, "texts/s", "InternVL3-8B, up to 13 tiles", share=0.4),
    Goal("run_fuser", "fused texts", "texts/s", "Qwen2.5-1.5B, prompts and texts of drawn lengths", share=0.4),
    Goal("clip_eva", "EVA02-E-14-plus alone, its best batch", "img/s"),
    Goal("clip_eva", "EVA02-E-14-plus from JPEG bytes", "img/s", "the CLIP of `30m`", share=0.45),
    Goal("ceilings", "bf16 products", "TFLOP/s", "790 seen on an H200"),
    Goal("ceilings", "fp32 products", "TFLOP/s"),
    Goal("ceilings", "copies", "TB/s", "4.3 seen on an H200"),
    Goal("clip_model", "ViT-L-14 alone, its best batch", "img/s", "2,125 on an H200"),
    Goal("clip_stage", "ViT-L-14 from JPEG bytes", "img/s", LOADERS),
    Goal("clip_stage", "stage / model", "of 1", LOADERS, 0.95),
    Goal("caption_7b", "captions", "img/s", SERVED, share=0.43),
    Goal("caption_7b", "decoded", "tokens/s"),
    Goal("caption_7b", "from JPEG bytes / model", "of 1", "", 0.95),
    Goal("caption_7b_plain", "captions, plain generate at its best batch", "img/s"),
    Goal("caption_7b_plain", "captions, batches of 8", "img/s"),
    Goal("caption_7b_plain", "ours / plain generate", "times", "", 1.4),
    Goal("caption_17b_256", "captions", "img/s", LEONARDO + " (five times the visual tokens)", share=0.46),
    Goal("caption_17b_256", "tokens of captions", "tokens/s", LEONARDO + " (five times the visual tokens)", share=0.46),
    Goal("caption_17b_1225", "captions", "img/s", LEONARDO, share=0.5),
    Goal("caption_17b_1225", "tokens of captions", "tokens/s", LEONARDO),
    Goal("memory", "rows answered of a batch that does not fit", "of 1", "", 1),
    Goal("memory", "rows with the error out_of_memory where none fits", "of 1", "", 1),
    Goal("broken", "BrokenDevice raised after a device-side assert", "of 1", "", 1),
    Goal("repeat", "smallest cosine of a repeat at another batch", "cosine", "", 0.9999),
    Goal("repeat", "largest difference of scalars is within 1e-3", "of 1", "", 1),
    Goal("repeat", "equal captions of a repeat at another batch", "of 1"),
    Goal("perplexity", "GPT-2 large's shape, 20 tokens a sentence", "sentences/s"),
)


def goal(row: str, what: str, unit: str) -> Goal:
    """Return the target of a measure, or a Goal without a target."""
    return next((each for each in GOALS if (each.row, each.what) == (row, what)), Goal(row, what, unit))
