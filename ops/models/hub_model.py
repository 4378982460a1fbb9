"""Find the files of a hub's model that this machine lacks, and download its weights so that a later call resumes.

The hub's own client deletes the part of a file that it has when its process ends; weights come in files of up to 5 GB.
"""

import hashlib
import re
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.whole_file import alone, cache_home
from pairmill.ops.models.model_digest import WEIGHT_SUFFIXES, hub_is_reachable, hub_name, not_downloaded

SHA256 = re.compile("[0-9a-f]{64}")


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
        """Download the large files to the hub's cache, each from where an earlier call ended. Raises NotDownloaded.

        One process downloads a file; others wait. A file with another SHA-256 than the hub's is deleted.
        """
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers

        for name, digest, size in self.files:
            blob = self.folder / "blobs" / digest
            with alone(cache_home() / "models" / f"{digest}.lock"):
                if blob.exists() or not digest:
                    continue
                try:
                    blob.parent.mkdir(parents=True, exist_ok=True)
                    (part := blob.with_suffix(".part")).touch()
                    with part.open("r+b") as stream:
                        done = stream.seek(min(size, stream.seek(0, 2)))
                        url = hf_hub_url(self.repo, name, revision=self.commit)
                        http_get(url, stream, resume_size=done, headers=build_hf_headers(), expected_size=size)
                        stream.seek(0)
                        if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
                            part.unlink()
                            raise OSError(f"{name} arrived damaged, run again")
                    part.rename(blob)
                except Exception as error:  # of the network, the hub or the disk
                    raise not_downloaded(self.spec, self.repo, error) from error


def missing_model(spec: str) -> MissingModel | None:
    """Ask the hub what this machine lacks of a model; return None for nothing, or if the hub does not answer."""
    if (named := hub_name(spec)) is None:
        return None
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    repo, revision, choices = named
    if constants.HF_HUB_OFFLINE or not hub_is_reachable() or (info := _ask(repo, revision)) is None:
        return None
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo, repo_type="model")
    wanted: list[Any] = []
    for patterns in choices:
        wanted = [each for each in info.siblings or () if any(fnmatch(each.rfilename, name) for name in patterns)]
        if any(each.rfilename.endswith(WEIGHT_SUFFIXES) for each in wanted):
            break
    card = info.card_data or {}
    licence = visible(str(card.get("license_name") or card.get("license") or "not stated"))[:80]
    stored = [(each, SHA256.fullmatch((each.lfs or {}).get("sha256", ""))) for each in wanted]
    files = tuple(
        (each.rfilename, digest[0] if digest else "", each.size or 0)
        for each, digest in stored
        if not (folder / "blobs" / (digest[0] if digest else each.blob_id)).exists()
    )
    return MissingModel(spec, repo, info.sha or "", str(licence), folder, files) if files else None


@cache
def _ask(repo: str, revision: str) -> Any:
    """Return the hub's record of a repository with its files' sizes; None if the hub does not answer or refuses."""
    from huggingface_hub import HfApi

    try:
        return HfApi().model_info(repo, revision=revision or None, files_metadata=True)
    except Exception:  # a dozen types; `resolve` says why, if the cache lacks the model too
        return None
