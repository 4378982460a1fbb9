"""Archives as the standard libraries write them, and malformed ones that no library would write."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile


def tar(files: list[tuple[str, bytes | str]], mode: str = "w", format: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar with these members in this order; a name may occur twice."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=format) as archive:  # pyright: ignore[reportCallIssue,reportArgumentType]
        for name, content in files:
            data = content if isinstance(content, bytes) else content.encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(files: dict[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a ZIP archive of these files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def sample(key: str, picture: bytes, caption: str, **about: object) -> list[tuple[str, bytes | str]]:
    """Return a sample's files as img2dataset writes them."""
    said = {"caption": caption, "key": key, "status": "success", **about}
    return [(f"{key}.jpg", picture), (f"{key}.json", json.dumps(said)), (f"{key}.txt", caption)]
