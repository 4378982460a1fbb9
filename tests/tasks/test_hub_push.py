"""`export --push` uploads the exported files byte for byte, and no file or path of this machine beside them."""

from pathlib import Path

import pytest

from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.release.export.hub_push import check_push, push
from tests.worlds.fake_hub import TOKEN, fake_hub

FILES = {"small-v1-000000.tar": b"a tar" * 1000, "README.md": b"# Card\n", "SHA256SUMS": b"00  x\n",
         ".croissant.json": b"{}"}  # fmt: skip


def test_a_push_uploads_the_files_and_what_describes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from huggingface_hub import constants

    for name, data in {**FILES, ".pairmill": b"{}", ".manifest.json": b"{}"}.items():
        (tmp_path / name).write_bytes(data)
    with fake_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # its servers are not the hub's
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        assert push(str(tmp_path), "small-v1-", "ada/pairs") == f"{hub.address}/datasets/ada/pairs"
        made = hub.repositories["ada/pairs"]
        assert (made["visibility"], made["type"]) == ("private", "dataset")
        assert hub.files == FILES
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
        with pytest.raises(PairmillError, match="Check the name and the token") as told:
            push(str(tmp_path), "small-v1-", "ada/pairs")
        assert "hf_wrong" not in str(told.value) and "\n" not in str(told.value)


def test_a_push_needs_a_name_of_two_parts_and_a_local_folder():
    for name in ("pairs", "a/b/c", "a/b c"):
        with pytest.raises(PairmillError, match="as USER/NAME"):
            check_push(name, "out")
    with pytest.raises(PairmillError, match="is on S3"):
        check_push("ada/pairs", "s3://data/out")
