"""Read images that a lake stores by reference from their source."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from pairmill.catalog.terms.ids import content_id
from pairmill.ops.fault import Fault
from pairmill.ops.read.places.tree import SourceError, open_regular

REMEDY = (
    "mount or restore it and run again, what is finished is kept; if it is gone for good, put a folder with any file "
    "in its place: then its pictures are quarantined as missing"
)


class Reference(NamedTuple):
    """Location of an image: ``length`` bytes from byte ``offset`` of the file or S3 object ``uri``; its content id."""

    sha256: str
    uri: str
    offset: int
    length: int


def contents(references: Sequence[Reference]) -> list[bytes | Fault | SourceError]:
    """Read the bytes of each reference, in order.

    A file that is gone, unreadable, or has other bytes now gives a Fault ``missing``. A SourceError is returned, not
    raised, if the place as a whole cannot be reached (a folder that is not mounted, S3 that does not respond): these
    images are not lost, and must not be recorded as lost.
    """
    far = [each for each in references if each.uri.startswith("s3://")]
    found = dict(zip(far, _of_s3(far), strict=True)) if far else {}
    return [_validate(each, found[each] if each in found else _of_file(each)) for each in references]


def _validate(reference: Reference, data: bytes | Exception) -> bytes | Fault | SourceError:
    """Validate the bytes against the content id; return a Fault ``missing`` if they differ or could not be read."""
    if isinstance(data, SourceError):
        return data
    if isinstance(data, bytes) and content_id(data) == reference.sha256:
        return data
    why = "other bytes stand there now" if isinstance(data, bytes) else getattr(data, "strerror", None) or str(data)
    place = reference.uri if reference.uri.startswith("s3://") else os.path.normpath(reference.uri)
    detail = f"its bytes, which the lake only refers to, are no longer at '{place}': {why}"
    return Fault(reference.sha256, "missing", detail)


def _of_file(reference: Reference) -> bytes | Exception:
    """Read a reference from a local file; return a SourceError if the whole source is empty or unreadable."""
    try:
        with open_regular(reference.uri) as file:
            file.seek(reference.offset)
            return file.read(reference.length)
    except OSError as error:
        source = reference.uri.partition("/./")[0]
        try:
            with os.scandir(source) as found:
                if any(found):
                    return error
            why = "it is empty"
        except OSError as whole:
            why = str(whole.strerror)
        told = f"source '{source}' cannot be read ({why}), and the lake only refers to its pictures: {REMEDY}"
        return SourceError(told)


def _of_s3(references: Sequence[Reference]) -> list[bytes | Exception]:
    """Read references from S3; return the same SourceError for each if S3 does not respond."""
    from pairmill.ops.read.places.s3 import ranges  # importing s3fs takes 0.5 s, which local references need not pay

    try:
        return ranges([(each.uri, each.offset, each.offset + each.length) for each in references])
    except SourceError as error:
        return [error] * len(references)
