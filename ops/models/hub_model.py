"""List the files of a model on the hub that this machine lacks; download the large ones, resuming after a break.

The hub's own client starts a file of up to 5 GB again when its process was ended: it deletes the part that it has.
"""

import hashlib
import os
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.whole_file import alone, cache_home
from pairmill.ops.models.model_digest import WEIGHT_SUFFIXES, hub_is_reachable, hub_name, not_downloaded


@dataclass(frozen=True)
class MissingModel:
    """A model of the hub of which this machine lacks ``files``: (name, SHA-256 or '' for a small one, bytes)."""

    spec: str
    repo: str
    commit: str
    licence: str
    folder: Path  # of the hub's cache
    files: tuple[tuple[str, str, int], ...]

    def __str__(self) -> str:
        gigabytes = sum(size for _, _, size in self.files) / 1e9
        return f"{self.spec}: {gigabytes:,.2g} GB, licence {self.licence}, to {self.folder}"

    def download_weights(self) -> None:
        """Download the large files to the hub's cache, each from where an earlier call ended. Raises NotDownloaded."""
        try:
            for name, digest, size in self.files:
                with alone(cache_home() / "models" / f"{digest}.lock"):
                    if digest and not (blob := self.folder / "blobs" / digest).exists():
                        self._download(name, size, blob)
        except Exception as error:  # of the network, the hub or the disk
            raise not_downloaded(self.spec, self.repo, error) from error

    def _download(self, name: str, size: int, blob: Path) -> None:
        """Continue or begin the download of a file; delete one whose SHA-256 is not the name of its blob."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers

        blob.parent.mkdir(parents=True, exist_ok=True)
        (part := blob.with_suffix(".part")).touch()
        with part.open("r+b") as stream:
            done, url = stream.seek(min(size, stream.seek(0, 2))), hf_hub_url(self.repo, name, revision=self.commit)
            http_get(url, stream, resume_size=done, headers=build_hf_headers(), expected_size=size)
            stream.seek(0)
            if hashlib.file_digest(stream, "sha256").hexdigest() != blob.name:
                part.unlink()
                raise OSError(f"{name} arrived damaged, run again")
            os.fsync(stream.fileno())  # a blob counts as whole by its name, after a power loss too
        part.rename(blob)


@cache
def _ask(repo: str, revision: str) -> Any:
    """Return the hub's record of a repository with its files' sizes; None if the hub does not answer or refuses."""
    from huggingface_hub import HfApi, constants

    try:
        asks = not constants.HF_HUB_OFFLINE and hub_is_reachable()
        return HfApi().model_info(repo, revision=revision or None, files_metadata=True) if asks else None
    except Exception:  # a dozen types; `resolve` says why, if the cache lacks the model too
        return None


def missing_model(spec: str) -> MissingModel | None:
    """Ask the hub what this machine lacks of a model; return None for nothing, or if the hub does not answer."""
    if (named := hub_name(spec)) is None or (info := _ask(*named[:2])) is None:
        return None
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=named[0], repo_type="model")
    files: list[Any] = []
    for patterns in named[2]:
        files = [each for each in info.siblings or () if any(fnmatch(each.rfilename, name) for name in patterns)]
        if any(each.rfilename.endswith(WEIGHT_SUFFIXES) for each in files):
            break
    names = [
        (each.rfilename, Path((each.lfs or {}).get("sha256", "")).name, each.size or 0, each.blob_id) for each in files
    ]
    lacking = tuple(each[:3] for each in names if not (folder / "blobs" / (each[1] or each[3])).exists())
    card = info.card_data or {}
    licence = visible(str(card.get("license_name") or card.get("license") or "not stated"))[:80]
    return MissingModel(spec, named[0], info.sha or "", licence, folder, lacking) if lacking else None
