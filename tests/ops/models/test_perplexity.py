import json
import pickle
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, BertConfig, BertForMaskedLM, T5Config

from pairmill.ops.models.device.row_batches import token_batches
from pairmill.ops.models.language import perplexity_loaded
from pairmill.ops.models.language.perplexity import Perplexity
from pairmill.ops.models.model_digest import ModelError
from tests.examples import examples
from tests.reference import perplexity as slow
from tests.worlds.golden import check_golden
from tests.worlds.tiny_language import START, save_language_model

CONTEXT = 24
TEXTS = [
    "the old red fire engine waits beside the station .",
    "cat",
    "",
    "the crew of the old engine waits for the next call",
    "one two three four five " * 20,
    " ",
    "a cat",
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_language_model(tmp_path_factory.mktemp("language"), context=CONTEXT)


def folder_of(spec: str) -> Path:
    return Path(spec.removeprefix("hf:"))


def score(spec: str, texts: list[str], **settings) -> np.ndarray:
    return Perplexity(spec, **settings)({"text": texts})["perplexity"]


def test_it_is_what_the_slow_twin_gives(spec: str):
    expected = [slow.perplexity(folder_of(spec), text, CONTEXT) for text in TEXTS]
    found = score(spec, TEXTS)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(set(np.round(found[~np.isnan(found)], 3))) == 5


def test_it_is_transformers_own_loss_with_the_start_token_before_the_text(spec: str):
    model = AutoModelForCausalLM.from_pretrained(folder_of(spec))
    tokenizer = AutoTokenizer.from_pretrained(folder_of(spec))
    for text in (TEXTS[0], TEXTS[3], TEXTS[6]):
        tokens = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        begun = torch.cat([torch.tensor([[tokenizer.eos_token_id]]), tokens], 1)
        with torch.no_grad():
            loss, without = (float(model(input_ids=ids, labels=ids).loss) for ids in (begun, tokens))
        assert score(spec, [text])[0] == pytest.approx(np.exp(loss), rel=1e-5)
        assert score(spec, [text])[0] != pytest.approx(np.exp(without), rel=1e-3)  # the first token counts


def test_neither_padding_nor_the_company_of_a_sentence_moves_its_value(spec: str):
    many = [text for n in range(5) for text in (*TEXTS, "the old " * n + "station")]
    alone = np.concatenate([score(spec, [text]) for text in many])
    for batch_size in (1, 3, 64):
        np.testing.assert_allclose(score(spec, many, batch_size=batch_size), alone, rtol=1e-5)
    np.testing.assert_allclose(score(spec, many[::-1]), alone[::-1], rtol=1e-5)


@given(lengths=st.lists(st.integers(0, 40), max_size=60), tokens=st.integers(1, 100))
@examples(50)
def test_batches_hold_every_row_with_a_token_once_and_their_padding_stays_in_bounds(lengths: list[int], tokens: int):
    batches = token_batches(lengths, tokens)
    assert sorted(row for batch in batches for row in batch) == [row for row, length in enumerate(lengths) if length]
    assert [lengths[row] for batch in batches for row in batch] == sorted(filter(None, lengths), reverse=True)
    assert all(len(batch) * lengths[batch[0]] <= tokens or len(batch) == 1 for batch in batches)
    assert all(lengths[batch[-1]] * 4 >= lengths[batch[0]] * 3 for batch in batches)
    assert all(  # none could have taken in the first of the next
        (len(batch) + 1) * lengths[batch[0]] > tokens or lengths[after[0]] * 4 < lengths[batch[0]] * 3
        for batch, after in pairwise(batches)
    )


def test_a_batch_is_measured_in_tokens_so_that_long_sentences_cannot_fill_the_memory(
    spec: str, monkeypatch: pytest.MonkeyPatch
):
    loaded, seen = perplexity_loaded.load(spec, "fp32"), []
    whole = loaded.mean_losses
    monkeypatch.setattr(loaded, "mean_losses", lambda rows: seen.append([len(row) for row in rows]) or whole(rows))
    score(spec, ["cat"] * 70 + ["one two three four five " * 4] * 3, batch_size=2)
    assert seen == [[20, 20, 20], [1] * 64, [1] * 6]


def test_a_text_beyond_the_context_counts_by_its_first_tokens(spec: str):
    first = " ".join(("one two three four five " * 20).split()[: CONTEXT - 1])
    long, cut, other = score(spec, [TEXTS[4], first, first + " cat" * 50])
    assert long == pytest.approx(cut, rel=1e-5) == other


def test_a_text_without_a_token_has_no_perplexity(spec: str):
    assert np.isnan(score(spec, ["", " ", "\n"])).all()
    assert score(spec, []).shape == (0,)


def test_case_and_order_of_words_count(spec: str):
    assert len(set(score(spec, ["the old cat", "old the cat", "cat old the", "The old cat"]))) == 4


def test_what_a_text_writes_like_a_special_token_is_text(spec: str):
    loaded = perplexity_loaded.load(spec, "fp32")
    (tokens,) = loaded.tokenize([f"cat {START} cat"])
    assert loaded.start not in tokens and len(tokens) > 3


def test_bf16_stays_close_to_fp32_although_logits_lie_near_minus_100(tmp_path: Path):
    if torch.cuda.is_available() and not torch.cuda.is_bf16_supported(False):
        pytest.skip("this GPU has no bfloat16")
    spec = save_language_model(tmp_path, context=CONTEXT, tied=False)
    # GPT-2's own habit: a direction that all words share, along which the last norm pushes every logit down.
    weights = load_file(tmp_path / "model.safetensors")
    weights["lm_head.weight"][:, 0] += 4.0
    weights["transformer.ln_f.weight"][0], weights["transformer.ln_f.bias"][0] = 0.0, -25.0
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    loaded = perplexity_loaded.load(spec, "bf16")
    ids = torch.tensor([[loaded.start, 1, 2]], device=loaded.model.device)
    assert loaded.model(input_ids=ids).logits.max() < -80
    np.testing.assert_allclose(score(spec, TEXTS, precision="bf16"), score(spec, TEXTS), rtol=0.03)


def test_a_precision_that_does_not_exist_is_refused_before_any_work():
    with pytest.raises(ModelError, match="fp32, bf16"):
        Perplexity("hf:/no/such/folder", precision="fp8")


def test_a_model_without_a_start_token_says_so(tmp_path: Path):
    with pytest.raises(ModelError, match=r"no bos_token and no eos_token.*tokenizer_config.json"):
        score(save_language_model(tmp_path, names={}), ["cat"])


def test_a_model_that_sees_what_comes_later_is_refused(tmp_path: Path):
    save_language_model(tmp_path)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertForMaskedLM(BertConfig(vocab_size=40, **size)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"no causal language model: what it says of a token depends.*gpt2-large"):
        score(f"hf:{tmp_path}", ["cat"])


def test_a_model_of_another_kind_or_with_damaged_weights_does_not_load(tmp_path: Path):
    save_language_model(tmp_path / "other")
    T5Config().save_pretrained(tmp_path / "other")
    with pytest.raises(ModelError, match=r"does not load as a causal language model.*gpt2-large"):
        score(f"hf:{tmp_path / 'other'}", ["cat"])
    save_language_model(tmp_path / "damaged")
    weights = tmp_path / "damaged/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="does not load"):
        score(f"hf:{tmp_path / 'damaged'}", ["cat"])
    with pytest.raises(ModelError, match="hf:NAME_OR_FOLDER"):
        score("open_clip:A/b", ["cat"])


class Touch:
    """What a checkpoint can hold: a call that its reader makes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_weights_that_are_no_safetensors_are_read_without_running_what_they_hold(tmp_path: Path):
    spec = save_language_model(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "away")
    torch.save(load_file(tmp_path / "away"), tmp_path / "pytorch_model.bin")
    plain = score(spec, TEXTS)
    hostile = Path(shutil.copytree(tmp_path, tmp_path.with_name("hostile")))
    torch.save({"transformer.wte.weight": Touch(tmp_path / "touched")}, hostile / "pytorch_model.bin")
    with pytest.raises(ModelError, match="does not load"):
        score(f"hf:{hostile}", ["cat"])
    assert not (tmp_path / "touched").exists()
    (hostile / "away").rename(hostile / "model.safetensors")  # is read before the other
    np.testing.assert_allclose(score(f"hf:{hostile}", TEXTS), plain, rtol=1e-5)


def test_a_checkpoint_that_lacks_weights_is_refused_instead_of_filled_at_random(tmp_path: Path):
    spec = save_language_model(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["transformer.h.1.mlp.c_fc.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"its weights lack transformer\.h\.1\.mlp"):
        score(spec, ["cat"])


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path):
    spec = save_language_model(tmp_path)
    settings = json.loads((tmp_path / "tokenizer.json").read_text())
    settings["model"]["vocab"] |= {f"word{n}": 100 + n for n in range(200)}
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match="not of one model"):
        score(spec, ["cat"])


def test_it_travels_without_weights_and_loads_once_a_process(spec: str):
    op = Perplexity(spec)
    before = op({"text": TEXTS[:2]})["perplexity"]
    sent = pickle.dumps(op)
    assert len(sent) < 1_000
    np.testing.assert_allclose(pickle.loads(sent)({"text": TEXTS[:2]})["perplexity"], before, rtol=1e-5)
    assert perplexity_loaded.load(spec, "fp32") is perplexity_loaded.load(spec, "fp32")


def test_golden_values_of_this_version(spec: str):
    check_golden("perplexity", Perplexity.version, score(spec, TEXTS))
