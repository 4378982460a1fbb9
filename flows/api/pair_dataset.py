"""Read one version of a dataset: its size, its funnel, its pairs, and an iterable for training."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset, FunnelStep, funnel, pairs_table
from pairmill.catalog.queries.gallery.image_vectors import vectors_of
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.flows.api.pair import Pair

if TYPE_CHECKING:  # torch takes 2 s to import
    import numpy as np
    import pyarrow as pa

    from pairmill.flows.api.training_pairs import TrainingPairs

SHOWN = 5  # pairs in a notebook


@dataclass(frozen=True)
class PairDataset:
    """A published version of a dataset; its length is the number of pairs. Only a takedown ever changes it."""

    lake: Lake
    version: Dataset

    def __str__(self) -> str:
        return str(self.version)

    def __repr__(self) -> str:
        return f"<{self.version} of lake {self.lake.uri}: {len(self):,} pairs>"

    def _repr_html_(self) -> str:
        """Draw the first pairs, pictures with texts, in a notebook."""
        from pairmill.flows.api.notebook_html import pairs_html

        return pairs_html(f"{self.version}: {len(self):,} pairs", islice(self.pairs(), SHOWN))

    def __len__(self) -> int:
        return self.version.n_pairs

    @property
    def columns(self) -> list[str]:
        """Names of the columns of `arrow` and of `Pair.columns`."""
        return self.arrow(limit=0).column_names

    @property
    def recipe(self) -> Recipe:
        """The recipe that made the version, with its calibrated thresholds filled in."""
        return Recipe.model_validate_json(self.version.recipe)

    def funnel(self) -> list[FunnelStep]:
        """Count the items that each rule received and dropped, in the order of the cut: images, then sentences."""
        return funnel(self.lake, self.version)

    def arrow(self, limit: int | None = None) -> "pa.Table":
        """Load the rows of ``pairs`` by image id, ``limit`` at most, without pictures: some 1 KB of memory a pair."""
        return pairs_table(self.lake, self.version, limit)

    def pairs(self) -> Iterator[Pair]:
        """Yield every pair with its image, in the order of the shards that hold the images.

        Raises PairmillError when an image's bytes are gone, damaged or cannot be read.
        """
        from pairmill.tasks.release.export.pictures import reading_pairs

        with reading_pairs(self.lake.uri, self.version) as reader:
            for row, data in reader.read(0, reader.size):
                yield Pair(row, data)

    def vectors(self, image_ids: Sequence[str]) -> "np.ndarray":
        """Return CLIP vectors of unit length, float32 (n, d), in the order of ``image_ids`` (at most 100,000).

        Raises PairmillError for an unknown id, and for an image without a vector.
        """
        return vectors_of(self.lake, self.version, image_ids)

    def torch(
        self, text: str | Sequence[str] = "random", seed: int = 0, transform: Callable[[Any], Any] | None = None
    ) -> "TrainingPairs":
        """Return the pairs as a torch IterableDataset, shuffled, and divided among ranks and workers.

        Args:
            text: Column of the text; 'random' or several columns: one of those that the pair has, drawn anew in each
                epoch.
            seed: Seed of the shuffle and the draw.
            transform: Function of an image (PIL, RGB), such as the preprocessing of open_clip.
        """
        from pairmill.flows.api.training_pairs import TrainingPairs

        return TrainingPairs(self.lake.uri, self.version, text, seed, transform)
