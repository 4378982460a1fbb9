"""Upload a finished export to a dataset repository of the Hugging Face Hub."""

import re
from pathlib import Path

from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.release.export.croissant import CROISSANT
from pairmill.tasks.release.export.destination import CARD, CHECKSUMS

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]{1,96}")


def check_push(repository: str, to: str) -> None:
    """Raise PairmillError unless ``repository`` is USER/NAME and the export ``to`` is a local folder."""
    if not _REPOSITORY.fullmatch(repository):
        raise PairmillError(f"--push {repository}: write the dataset repository as USER/NAME.")
    if to.startswith("s3://"):
        raise PairmillError(f"--push uploads a folder of this machine, and '{to}' is on S3. Export to a folder.")


def push(folder: str, stem: str, repository: str) -> str:
    """Upload the export in ``folder``, whose data files begin with ``stem``; return the repository's address.

    A repository that does not exist is created, private. The token is the user's: HF_TOKEN, or that of `hf auth login`.
    HF_ENDPOINT names another hub. Large folders are committed in parts, and the same call goes on after a failure:
    files that arrived are not sent again. The export's marks and lists stay here.

    Raises:
        PairmillError: The hub refuses, or cannot be reached.
    """
    from huggingface_hub import HfApi  # 0.3 s
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    api = HfApi()
    wanted = [f"{stem}*", CARD, CHECKSUMS, CROISSANT]
    try:
        address = api.create_repo(repository, repo_type="dataset", private=True, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            folder_path=Path(folder),
            repo_type="dataset",
            allow_patterns=wanted,
            commit_message=f"Upload {stem.removesuffix('-')} by Pairmill",
        )
    except (HfHubHTTPError, LocalTokenNotFoundError, OSError) as error:
        raise PairmillError(
            f"--push {repository}: {api.endpoint} did not take it ({' '.join(str(error).split())[:300]}). Check the "
            "name and the token (hf auth login, or HF_TOKEN with the right to write), then run the same again."
        ) from error
    return str(address)
