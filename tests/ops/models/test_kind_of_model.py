import json
import subprocess
import sys
from pathlib import Path

import pytest

from pairmill.ops.models.model_digest import ModelError, is_vision_language
from tests.worlds.tiny_chat import save_chat_model
from tests.worlds.tiny_language import save_language_model
from tests.worlds.tiny_vlm import save_vlm

ROOT = Path(__file__).resolve().parents[3]
# Of transformers' table for pictures and text: a protein's model, a robot's, and two whose configs name no picture.
UNSEEN = {"evolla", "pi0", "mistral4", "vision-encoder-decoder"}
# Of its table for text alone: one that takes pictures as well.
SEES_TOO = {"phi4_multimodal"}


def test_the_shipped_and_the_small_models_are_told_apart(tmp_path: Path):
    assert is_vision_language(f"hf:{ROOT}/infra/demo/models/captioner")
    assert not is_vision_language(f"hf:{ROOT}/infra/demo/models/language")
    assert all(is_vision_language(save_vlm(tmp_path / kind, kind)) for kind in ("idefics3", "llava"))
    assert not is_vision_language(save_chat_model(tmp_path / "chat"))
    assert not is_vision_language(save_language_model(tmp_path / "language"))


@pytest.mark.slow
def test_it_agrees_with_transformers_own_tables(tmp_path: Path):
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto

    seeing = set(modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    found = {}
    for kind in seeing | set(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        try:
            config = AutoConfig.for_model(kind).to_json_string()
        except Exception:  # some kinds have no config of defaults
            continue
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "config.json").write_text(config)
        (tmp_path / kind / "model.safetensors").touch()
        found[kind] = is_vision_language(f"hf:{tmp_path / kind}")
    assert len(found) > 200 and {"qwen2", "llama", "gpt2", "smolvlm", "idefics3", "fast_vlm"} <= found.keys()
    differs = {kind for kind, sees in found.items() if sees != (kind in seeing)}
    assert differs <= UNSEEN | SEES_TOO


def test_torch_is_not_imported_for_it():
    module = "pairmill.ops.models.model_digest"
    asked = f"from {module} import is_vision_language; is_vision_language('hf:{ROOT}/infra/demo/models/captioner')"
    imported = "import sys; print(bool({'torch', 'transformers'} & sys.modules.keys()))"
    command = [sys.executable, "-c", f"{asked}; {imported}"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("content", [None, "no JSON", b"\xff".decode("latin-1")])
def test_a_model_without_a_config_that_can_be_read_is_refused_with_the_remedy(tmp_path: Path, content: str | None):
    (tmp_path / "model.safetensors").touch()
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"its config.json cannot be read .*; copy the whole model"):
        is_vision_language(f"hf:{tmp_path}")


def test_a_model_of_another_library_or_that_is_missing_is_refused(tmp_path: Path):
    with pytest.raises(ModelError, match="hf:NAME_OR_FOLDER"):
        is_vision_language("open_clip:A/b")
    with pytest.raises(ModelError, match="no folder"):
        is_vision_language(f"hf:{tmp_path / 'away'}")


def test_a_config_that_is_no_object_sees_nothing(tmp_path: Path):
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.json").write_text(json.dumps(["vision_config"]))
    assert not is_vision_language(f"hf:{tmp_path}")
