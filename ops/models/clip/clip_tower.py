"""Keep one tower of a CLIP in memory: a search by words needs no image tower, which takes 0.35 GB of a ViT-B-32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pairmill.ops.models.clip.clip import Clip

if TYPE_CHECKING:
    from pairmill.ops.models.clip.clip_loaded import LoadedClip

Side = Literal["text", "image"]


@dataclass(frozen=True)
class ClipTower(Clip):
    """A CLIP with one tower: ``side`` "text" only embeds sentences, "image" only pictures; vectors are the same."""

    side: Side = "text"

    @property
    def _loaded(self) -> LoadedClip:
        """This tower in this process, loaded on first use."""
        from pairmill.ops.models.clip.clip_loaded import load_tower  # imports torch, as in Clip

        return load_tower(self.spec, self.precision, self.side)
