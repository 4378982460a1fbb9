"""The decoding of GPUs, run step by step on the CPU: the slow twin is transformers' own generate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    FastVlmConfig,
    FastVlmForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

from pairmill.ops.models.generate.cuda_graph_decoding import Decoder, NotCapturable
from pairmill.ops.models.generate.quick_parts import grouped_attention, lay_out_patches, share_keys
from pairmill.ops.models.generate.trial import why_not_capturable
from pairmill.ops.models.language import language_model_loaded
from pairmill.ops.models.vision_language import vlm_loaded
from tests.worlds.tiny import fill
from tests.worlds.tiny_families import save_family
from tests.worlds.tiny_vlm import save_vlm

DEMO = Path(__file__).parents[3] / "infra" / "demo" / "models"
PAD, IMAGE, START, STOP = 0, 5, 6, 7
TEXT: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": PAD, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip


def twin(model: Any, inputs: dict[str, Any], max_tokens: int, ends: list[int]) -> torch.Tensor:
    """What transformers says, padded to the most tokens as the decoder does."""
    with torch.inference_mode():
        said = model.generate(
            **inputs, max_new_tokens=max_tokens, do_sample=False, eos_token_id=ends or None, pad_token_id=PAD
        )[:, inputs["input_ids"].shape[1] :]
    return torch.nn.functional.pad(said, (0, max_tokens - said.shape[1]), value=PAD)


def check(model: Any, inputs: dict[str, Any], max_tokens: int, several: int = 3) -> torch.Tensor:
    """Compare without an end token, then with the most said word as one; return what is said without."""
    said = twin(model, inputs, max_tokens, [])
    assert len(said.unique()) > several, "the answers must differ, or they prove nothing"
    end = int(said[:, 1:].flatten().mode().values)
    with torch.inference_mode():
        assert torch.equal(Decoder(model, [], PAD).generate([inputs], max_tokens), said)
        assert torch.equal(
            Decoder(model, [end], PAD).generate([inputs], max_tokens), twin(model, inputs, max_tokens, [end])
        )
    return said


def padded(lengths: list[int], seed: int = 1, before: list[int] | None = None) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    rows = [[*(before or []), *torch.randint(10, 96, (length,)).tolist()] for length in lengths]
    longest = max(map(len, rows))
    ids = torch.tensor([[PAD] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


def llama(**other: Any) -> Any:
    model: Any = LlamaForCausalLM(LlamaConfig(**(TEXT | other))).eval()
    fill(model, 0.3)
    return model


def qwen() -> tuple[Any, dict[str, Any]]:
    """A Qwen2.5-VL that sees two pictures of unlike sizes, a row each."""
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 14, "out_hidden_size": 32,
        "window_size": 56, "fullatt_block_indexes": [1],
    }  # fmt: skip
    text = TEXT | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}}
    config = Qwen2_5_VLConfig(
        vision_config=vision, text_config=text, image_token_id=IMAGE, vision_start_token_id=START,
        vision_end_token_id=STOP,
    )  # fmt: skip
    model: Any = Qwen2_5_VLForConditionalGeneration(config).eval()
    fill(model, 0.3)
    grids = torch.tensor([[1, 4, 6], [1, 4, 4]])
    torch.manual_seed(4)
    rows = [[START, *[IMAGE] * 6, STOP, 20, 30, 31], [START, *[IMAGE] * 4, STOP, 40, 22]]
    ids = torch.tensor([[PAD] * (11 - len(row)) + row for row in rows])
    inputs = {
        "input_ids": ids, "attention_mask": (ids != PAD).long(), "mm_token_type_ids": (ids == IMAGE).long(),
        "pixel_values": torch.randn(int(grids.prod(-1).sum()), 3 * 2 * 14 * 14), "image_grid_thw": grids,
    }  # fmt: skip
    return model, inputs


def fast_vlm() -> tuple[Any, dict[str, Any]]:
    vision = {"model_type": "timm_wrapper", "architecture": "convnext_atto", "num_classes": 0, "hidden_size": 320}
    config = FastVlmConfig(vision_config=vision, text_config=TEXT | {"model_type": "qwen2"}, image_token_index=IMAGE)
    model: Any = FastVlmForConditionalGeneration(config).eval()
    fill(model, 0.2)
    torch.manual_seed(4)
    return model, padded([4, 2, 7], before=[IMAGE] * 4) | {"pixel_values": torch.randn(3, 3, 64, 64)}


@pytest.mark.parametrize("made", [qwen, fast_vlm])
def test_a_model_that_sees_says_over_fixed_buffers_what_generate_says(made: Any):
    torch.set_num_threads(1)
    check(*made(), 21)


def test_a_llava_says_over_fixed_buffers_what_generate_says(tmp_path: Path):
    loaded = vlm_loaded.load(save_vlm(tmp_path, "llava"), "fp32", ())
    assert not why_not_capturable(loaded.model)
    pictures = [np.random.default_rng(row).integers(0, 255, (40, 50, 3), np.uint8) for row in range(3)]
    ready = loaded.prepare(list(pictures), ["what", "describe this picture", "tell me more of the old red engine"])
    check(loaded.model, loaded.answerer.placed(ready.inputs), 12)


def test_the_demos_models_say_over_fixed_buffers_what_generate_says():
    rng = np.random.default_rng(0)
    captioner = vlm_loaded.load(f"hf:{DEMO / 'captioner'}", "fp32", ())
    pictures = [rng.integers(0, 255, (96, 120, 3), np.uint8) // (1 + row) for row in range(4)]
    ready = captioner.prepare(list(pictures), ["Describe the picture."] * 3 + ["Describe the red picture at length."])
    check(captioner.model, captioner.answerer.placed(ready.inputs), 30)
    fuser = language_model_loaded.load(f"hf:{DEMO / 'fuser'}", "fp32")
    ready = fuser.prepare(["a red circle", "two blue squares beside a tree", "a dog"])
    check(fuser.model, fuser.answerer.placed(ready.inputs), 30)


def test_one_decoder_takes_batches_of_any_shape_after_another():
    """What an earlier batch left in the memory that they share is not seen."""
    model = llama()
    decoder = Decoder(model, [], PAD)
    for lengths, max_tokens in [
        ([5, 9, 7], 8),
        ([3], 20),
        ([70, 60, 65, 70, 12], 30),
        ([5, 9, 7], 20),
        ([1, 4, 2], 9),
        ([2, 1], 1),
    ]:
        inputs = padded(lengths, seed=len(lengths))
        with torch.inference_mode():
            assert torch.equal(decoder.generate([inputs], max_tokens), twin(model, inputs, max_tokens, []))
    assert len(decoder.shapes) == 2, "shapes made before the memory grew are gone, few are made"


def test_a_penalty_on_repeated_words_is_kept():
    model = llama()
    plain = twin(model, padded([5, 9]), 20, [])
    model.generation_config.repetition_penalty = 1.3
    assert not torch.equal(check(model, padded([5, 9]), 20), plain)


def test_a_model_that_attends_by_plain_products_is_decoded_too():
    check(llama(attn_implementation="eager"), padded([4, 8, 2]), 20)


def test_models_that_keep_other_things_or_other_rules_are_left_to_generate():
    model = llama()
    assert why_not_capturable(model) == ""
    model.generation_config.no_repeat_ngram_size = 3
    assert "no_repeat_ngram_size" in why_not_capturable(model)
    from transformers import MistralConfig, MistralForCausalLM

    sliding = MistralForCausalLM(MistralConfig(**(TEXT | {"sliding_window": 8}))).eval()
    with pytest.raises(NotCapturable, match="MistralForCausalLM keeps more"), torch.inference_mode():
        Decoder(sliding, [], PAD).generate([padded([4])], 5)


def test_heads_that_share_keys_attend_as_if_each_had_its_own():
    torch.manual_seed(2)
    query, key, value = torch.randn(3, 6, 1, 8), torch.randn(3, 2, 10, 8), torch.randn(3, 2, 10, 8)
    mask = torch.rand(3, 1, 1, 10) > 0.3
    own = torch.nn.functional.scaled_dot_product_attention(
        query, key.repeat_interleave(3, 1), value.repeat_interleave(3, 1), attn_mask=mask, scale=0.4
    )
    torch.testing.assert_close(grouped_attention(query, key, value, mask, 0.4), own.transpose(1, 2))


def test_patches_laid_out_row_by_row_stay_so_and_change_no_feature(tmp_path: Path):
    loaded = vlm_loaded.load(save_family(tmp_path, "smolvlm"), "fp32", ())
    tower, pixels = loaded.model.model.vision_model, loaded.example()["pixel_values"].flatten(0, 1)
    seen: list[bool] = []
    for layer in tower.encoder.layers:
        layer.register_forward_pre_hook(lambda _, given: seen.append(given[0].is_contiguous()))
    with torch.inference_mode():
        before = tower(pixels).last_hidden_state
        assert not any(seen), "transformers lays them out itself: delete lay_out_patches"
        lay_out_patches(loaded.model)
        assert torch.equal(tower(pixels).last_hidden_state, before)
    assert all(seen[len(seen) // 2 :])


def test_sharing_keys_changes_no_answer():
    model = llama()
    said = twin(model, padded([6, 3, 11]), 25, [])
    share_keys(model)
    assert model.config._attn_implementation == "pairmill"
    assert torch.equal(check(model, padded([6, 3, 11]), 25), said)


@pytest.mark.parametrize("shared", [False, True])
def test_a_prefill_of_prompts_of_one_length_attends_causally_without_a_mask(
    shared: bool, monkeypatch: pytest.MonkeyPatch
):
    """Torch's flash kernel takes no mask: a group of equal prompts, such as one prompt at one tile, needs none."""
    model, seen = llama(), []
    if shared:
        share_keys(model)
    attend = torch.nn.functional.scaled_dot_product_attention

    def spy(*given: Any, attn_mask: Any = None, is_causal: bool = False, **other: Any) -> torch.Tensor:
        seen.append((attn_mask is None, is_causal))
        return attend(*given, attn_mask=attn_mask, is_causal=is_causal, **other)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    with torch.inference_mode():
        for lengths, expected in (([9, 9, 9], (True, True)), ([9, 4, 9], (False, False))):
            seen.clear()
            Decoder(model, [], PAD).prefill(padded(lengths))
            assert seen == [expected] * 2
