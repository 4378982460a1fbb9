"""Define Example, a small source that a format declares of itself, and build the files that examples consist of."""

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# The address, alt text and page that examples have.
ADDRESS = "https://x.example/a.jpg"
CAPTION = "An a."
PAGE = f"<title>T</title><p>A first sentence.</p><img src=a.jpg alt='{CAPTION}'><p>A second sentence.</p>".encode()


@dataclass(frozen=True)
class Example:
    """A small example source of a format, for README's table, the tests, the fuzzer and the golden values."""

    what: str  # what such a source is, in Markdown, for README's table
    source: str  # name of its file or folder
    files: Callable[[], dict[str, bytes]]  # makes content by path, which begins with ``source`` or its name's stem
    images: int = 0  # images that its documents hold
    links: int = 0  # images that its documents only link to


def picture(*colours: str, format: str = "JPEG") -> bytes:
    """Return the bytes of an image of 40 by 30 pixels, with one page per colour; one red page by default."""
    from PIL import Image  # 0.1 CPU seconds, which only tests pay

    first, *others = (Image.new("RGB", (40, 30), colour) for colour in colours or ("red",))
    out = io.BytesIO()
    first.save(out, format, **({"save_all": True, "append_images": others} if others else {}))
    return out.getvalue()


def tar_of(files: dict[str, bytes]) -> bytes:
    """Return the bytes of a tar with these files (path -> content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    """Return the bytes of a zip with these files (path -> content)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def parquet_of(row: Mapping[str, object]) -> bytes:
    """Return the bytes of a Parquet file with one row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row]), out)
    return out.getvalue()
