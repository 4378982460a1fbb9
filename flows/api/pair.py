"""Hold one pair of a dataset; its image is decoded at the first use."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from PIL import Image

from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.fault import Fault
from pairmill.ops.image.pixels import pixels_of


@dataclass(frozen=True)
class Pair:
    """An image of a published version, with its texts.

    Attributes:
        columns: The row of the table ``pairs``: ids, texts, similarities, statuses, size, cluster and tags.
        data: The original bytes of the image.
    """

    columns: dict[str, Any]
    data: bytes = field(repr=False)

    @property
    def image_id(self) -> str:
        """Id of the image, as in all tables."""
        return self.columns["image_id"]

    @property
    def texts(self) -> dict[str, str]:
        """Texts by column, empty ones left out: retrieved sentences, synthetic text, caption, alt text."""
        return {name: text for name in text_columns.of_every_kind() if (text := self.columns.get(name))}

    @cached_property
    def image(self) -> Image.Image:
        """The image in RGB, decoded at the first use to the pixels that the scores were computed from.

        Raises PairmillError for bytes that cannot be decoded.
        """
        pixels = pixels_of(self.data)
        if isinstance(pixels, Fault):
            raise PairmillError(f"image {self.image_id} cannot be decoded: {pixels.reason}: {pixels.detail}")
        return Image.fromarray(pixels)
