"""Check models on S3: a machine has one complete copy, and makes a new one when the model was replaced."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from pairmill.flows.machine.finding import Finding
from pairmill.flows.machine.recipe_models import _findings
from pairmill.ops.models.clip.clip_loaded import load
from pairmill.ops.models.model_digest import model_digest, resolve
from pairmill.ops.models.model_error import ModelError
from pairmill.ops.models.s3_folder import s3_folder
from pairmill.ops.read.places.s3 import filesystem
from tests.worlds.s3 import bucket, server, upload
from tests.worlds.tiny import save_clip

__all__ = ["bucket", "server"]
SPEC = "open_clip:local-dir:s3://corpus/models/clip"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give each test a cache folder of its own, and forget what the process listed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    s3_folder.cache_clear()
    yield tmp_path / "cache/pairmill/models"
    s3_folder.cache_clear()


@pytest.fixture
def model(bucket, tmp_path: Path) -> Path:
    """Save a CLIP with a README beside its weights, here and at SPEC; return its folder."""
    save_clip(tmp_path / "clip")
    (tmp_path / "clip/README.md").write_text("about")
    upload(bucket, tmp_path / "clip", "models/clip/")
    return tmp_path / "clip"


def test_it_is_the_model_of_the_same_folder_on_disk(model: Path, own_cache: Path) -> None:
    here = f"open_clip:local-dir:{model}"
    assert model_digest(SPEC) == model_digest(here) == model_digest("hf:s3://corpus/models/clip/")
    assert {file.name for file in resolve(SPEC).iterdir()} == {file.name for file in model.iterdir()} - {"README.md"}
    pictures = torch.full((1, 3, 32, 32), 90, dtype=torch.uint8)
    assert torch.equal(load(SPEC, "fp32").embed_images(pictures), load(here, "fp32").embed_images(pictures))
    assert len([each for each in own_cache.iterdir() if each.is_dir()]) == 1  # a last slash makes no other copy


def test_processes_that_want_it_at_once_copy_it_once(model: Path, own_cache: Path) -> None:
    with ThreadPoolExecutor(4) as threads:  # below the memo of a process
        uncached = s3_folder.__wrapped__
        folders = set(threads.map(lambda _: uncached(SPEC, "s3://corpus/models/clip", ("*.safetensors",)), range(4)))
    assert len(folders) == 1
    assert {each.suffix for each in own_cache.iterdir()} == {"", ".lock"}


def test_a_large_file_is_copied_whole(bucket) -> None:
    data = np.random.default_rng(3).bytes(12_345_678)
    bucket.put_object(Bucket="corpus", Key="large/a/model.safetensors", Body=data)
    bucket.put_object(Bucket="corpus", Key="large/config.json", Body=b"")
    folder = s3_folder("hf:x", "s3://corpus/large", ("*.safetensors", "*.json"))
    assert (folder / "a/model.safetensors").read_bytes() == data and (folder / "config.json").read_bytes() == b""


def test_a_replaced_model_is_copied_anew_by_the_next_process(model: Path, bucket) -> None:
    before, folder = model_digest(SPEC), resolve(SPEC)
    bucket.put_object(Bucket="corpus", Key="models/clip/open_clip_config.json", Body=b'{"model_cfg": {}}')
    assert model_digest(SPEC) == before
    s3_folder.cache_clear()
    assert model_digest(SPEC) != before and folder.is_dir()


def test_a_copy_that_breaks_off_or_sees_a_change_leaves_nothing(
    model: Path, bucket, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = filesystem().get_file

    def replaced(key: str, file: str) -> None:
        copy(key, file)
        bucket.put_object(Bucket="corpus", Key="models/clip/tokenizer.json", Body=b"new")

    def broken(key: str, file: str) -> None:
        raise OSError("disk quota exceeded")

    for stand_in, message in ((replaced, "changed while it was copied"), (broken, "quota.*XDG_CACHE_HOME")):
        with monkeypatch.context() as patch, pytest.raises(ModelError, match=message):
            patch.setattr(filesystem(), "get_file", stand_in)
            resolve(SPEC)
        assert {each.suffix for each in own_cache.iterdir()} == {".lock"}
    assert resolve(SPEC).is_dir()


@pytest.mark.parametrize("place", ["s3://corpus/none", "s3://corpus", "s3://absent/clip"])
def test_a_place_without_a_model_is_named(bucket, place: str) -> None:
    with pytest.raises(ModelError, match=rf"model 'hf:{place}'.*check the address"):
        resolve(f"hf:{place}")


def test_doctor_says_whether_the_first_run_copies_it(model: Path) -> None:
    assert list(_findings(SPEC)) == [Finding("ok", f"{SPEC}: the first run copies it")]
    resolve(SPEC)
    assert list(_findings(SPEC)) == [Finding("ok", f"{SPEC}: on this machine")]
