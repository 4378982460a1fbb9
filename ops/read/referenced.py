"""Pictures that a lake refers to instead of keeping: their bytes are read where their source has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from ops.fault import Fault
from ops.identity import content_id
from ops.read.tree import SourceError

GONE_FOR_GOOD = "if it is gone for good, an empty folder in its place lets a run go on without its pictures"


class Reference(NamedTuple):
    """``length`` bytes from ``offset`` on of the file or S3 object ``uri``, whose id was ``sha256``."""

    sha256: str
    uri: str
    offset: int
    length: int


def contents(references: Sequence[Reference]) -> list[bytes | Fault]:
    """The bytes of each; a Fault 'missing' where its file is gone, cannot be read or holds other bytes by now.

    SourceError where the place as a whole is out of reach (a folder that is not mounted, S3 that does not answer): its
    pictures are not lost, and must not be taken for it.
    """
    far = [each for each in references if each.uri.startswith("s3://")]
    found = dict(zip(far, _of_s3(far), strict=True)) if far else {}
    return [_checked(each, found[each] if each in found else _of_file(each)) for each in references]


def _checked(reference: Reference, data: bytes | Exception) -> bytes | Fault:
    if isinstance(data, bytes) and content_id(data) == reference.sha256:
        return data
    why = "other bytes stand there now" if isinstance(data, bytes) else getattr(data, "strerror", None) or str(data)
    detail = f"its bytes, which the lake only refers to, are no longer at '{reference.uri}': {why}"
    return Fault(reference.sha256, "missing", detail)


def _of_file(reference: Reference) -> bytes | Exception:
    try:
        with open(reference.uri, "rb") as file:
            file.seek(reference.offset)
            return file.read(reference.length)
    except OSError as error:
        folder = os.path.dirname(reference.uri)
        try:
            os.scandir(folder).close()
        except OSError as whole:
            raise SourceError(
                f"'{folder}' cannot be read ({whole.strerror}), and the lake only refers to its pictures: mount or "
                f"restore it and run again, what is finished is kept; {GONE_FOR_GOOD}"
            ) from error
        return error


def _of_s3(references: Sequence[Reference]) -> list[bytes | Exception]:
    from ops.read.s3 import ranges  # s3fs takes 0.5 s to import, which pictures in folders need not pay

    return ranges([(each.uri, each.offset, each.offset + each.length) for each in references])
