"""Encode requests to /v1/chat/completions: an image as a data URL, a prompt, temperature 0, a token limit."""

from __future__ import annotations

import base64
import io
import json
import re

import numpy as np
import simplejpeg
from PIL import Image

# Image encodings in requests: 'png' is lossless, 'jpeg-90' is some eight times smaller.
ENCODING = re.compile(r"png|jpeg-([1-9][0-9]?|100)")


def encoded(picture: np.ndarray, encoding: str) -> tuple[str, bytes]:
    """Encode (h, w, 3) uint8 RGB as 'png' or 'jpeg-QUALITY'; return its media type and bytes."""
    if encoding == "png":
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "PNG", compress_level=1)
        return "image/png", file.getvalue()
    quality = int(encoding.removeprefix("jpeg-"))
    return "image/jpeg", simplejpeg.encode_jpeg(np.ascontiguousarray(picture), quality, "RGB", "420")


def messages(picture: np.ndarray | None, prompt: str, encoding: str) -> bytes:
    """Return the JSON of a single user message with ``prompt``, and with the image if there is one."""
    content: list[dict] | str = prompt
    if picture is not None:
        kind, data = encoded(picture, encoding)
        url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": prompt}]
    return json.dumps([{"role": "user", "content": content}], ensure_ascii=False).encode()


def request(model: str, messages: bytes, max_tokens: int, limit: str = "max_tokens") -> bytes:
    """Return the JSON body of a request. ``limit`` is this server's name of the token limit."""
    head = json.dumps({"model": model, limit: max_tokens, "temperature": 0, "stream": False}, ensure_ascii=False)
    return head[:-1].encode() + b', "messages": ' + messages + b"}"
