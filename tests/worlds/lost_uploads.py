"""Patch moto's S3 server so that an upload it has accepted is absent from the bucket, cut short, or an error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import s3fs
from moto.s3.exceptions import NoSuchUpload
from moto.s3.models import S3Backend
from moto.s3.responses import S3Response

ERROR = "<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
# What the completion answers: 404; 200 with an error in its body; 200, and the object is not there, or lacks a byte.
LOSSES = ("no such upload", "an error in a 200", "absent", "short")


@contextmanager
def losing(loss: str, under: str = "") -> Iterator[list[str]]:
    """Lose uploads of keys that begin with ``under``; yield the list of their keys."""
    lost: list[str] = []
    complete, put = S3Backend.complete_multipart_upload, S3Backend.put_object

    def is_lost(key: str) -> bool:
        if not key.startswith(under):
            return False
        lost.append(key)
        return True

    def completed(self: S3Backend, bucket: str, upload: str, body: Any) -> Any:
        if loss == "no such upload" and is_lost(self.get_bucket(bucket).multiparts[upload].key_name):
            raise NoSuchUpload(upload_id=upload)
        return complete(self, bucket, upload, body)

    def stored(self: S3Backend, bucket: str, key: str, value: bytes, *rest: Any, **named: Any) -> Any:
        return put(self, bucket, key, value[:-1] if loss == "short" and is_lost(key) else value, *rest, **named)

    def answering(answer: Any) -> Any:
        def answered(self: S3Response, *given: Any, **named: Any) -> Any:
            found, key = answer(self, *given, **named), given[4] if given else self.parse_key_name()
            is_end = answer is put_object or "CompleteMultipartUpload" in str(found[2])
            if not is_end or loss not in ("an error in a 200", "absent") or not is_lost(key):
                return found
            self.backend.get_bucket(self.bucket_name).keys.pop(key, None)
            return found if loss == "absent" else (200, {}, ERROR)

        return answered

    put_object = S3Response.put_object
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Backend, "complete_multipart_upload", completed)
        patch.setattr(S3Backend, "put_object", stored)
        for name in ("_key_response_post", "put_object"):
            patch.setattr(S3Response, name, answering(getattr(S3Response, name)))
        patch.setattr(s3fs.S3FileSystem, "default_block_size", 5 * 2**20)  # the least that s3fs admits
        patch.setattr("s3fs.core.asyncio.sleep", _briefly(s3fs.core.asyncio.sleep))
        patch.setattr("botocore.retryhandler.delay_exponential", lambda *_, **__: 0.005)
        yield lost


def _briefly(sleep: Any) -> Any:
    return lambda seconds, *rest: sleep(min(seconds, 0.005), *rest)
