"""A lake that is open for reading: SQL, datasets, explanations."""

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.snapshot import current_snapshot
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare.version_diff import VersionDiff, version_diff
from pairmill.catalog.queries.explain.why import scope_of
from pairmill.catalog.queries.explain.why_document import explain_document
from pairmill.catalog.queries.explain.why_image import explain_image
from pairmill.catalog.queries.explain.why_sentence import explain_sentence
from pairmill.catalog.queries.gallery.gallery_file import gallery_file
from pairmill.catalog.queries.gallery.gallery_query import Gallery
from pairmill.catalog.queries.gallery.named_clusters import NamedCluster, named_clusters
from pairmill.catalog.queries.judge.judged_samples import judged_samples
from pairmill.catalog.queries.judge.judged_threshold import JudgedThreshold, judged_threshold, sample_of
from pairmill.catalog.queries.sql.sql_answer import Relation, relation
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.upkeep.forgotten_scorer import Forgettable
from pairmill.catalog.write.import_scores import ImportedScores, import_scores
from pairmill.catalog.write.lease import writing
from pairmill.flows.api.asked_item import dataset_about, find_item
from pairmill.flows.api.pair_dataset import PairDataset
from pairmill.flows.api.words_in_sql import provide_words

if TYPE_CHECKING:  # reads of all export formats, 0.5 s
    from pairmill.tasks.recut import CutTrial
    from pairmill.tasks.release.export.export import Captions, Exported
    from pairmill.tasks.release.export.export_forms import Format
    from pairmill.tasks.release.gallery.concepts import Concept


@dataclass(frozen=True)
class OpenLake:
    """An existing lake, which a run may write to meanwhile: each call reads the newest state, or a pinned snapshot.

    Use it in one thread at a time, and close it, or use it in a ``with``.
    """

    lake: Lake

    def __repr__(self) -> str:
        return f"<lake {self.lake.uri}: {', '.join(map(str, self.datasets())) or 'no dataset yet'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the lake."""
        self.lake.close()

    def sql(self, query: str) -> Relation:
        """Return the result of a SELECT as a DuckDB relation: ``.df()``, ``.arrow()``, ``.pl()``, ``.fetchall()``.

        It runs when its rows are fetched; the lake must be open then. Raises BadQuery for another statement, and for
        one that DuckDB refuses.
        """
        provide_words(self.lake, query)
        return relation(self.lake, query)

    def datasets(self) -> list[PairDataset]:
        """Return every version of every dataset, by name and version."""
        return [PairDataset(self.lake, version) for version in datasets.published(self.lake)]

    def dataset(self, spec: str) -> PairDataset:
        """Return version ``NAME@VERSION``, or the newest of ``NAME``. Raises PairmillError if there is none."""
        return PairDataset(self.lake, datasets.find(self.lake, spec))

    @property
    def snapshot(self) -> int:
        """Number of the snapshot that is read now; ``open(…, version=number)`` opens it again until it expires."""
        return current_snapshot(self.lake.query)

    def try_recut(self, dataset: str, changes: Mapping[str, Any]) -> "CutTrial":
        """Return what `recut` would give, and publish nothing: needed scores, rates by rule, images by each threshold.

        The arguments and errors are those of `recut`.
        """
        from pairmill.tasks.recut import try_recut

        return try_recut(self.lake, dataset, changes)

    def recut(self, dataset: str, changes: Mapping[str, Any], name: str = "") -> PairDataset:
        """Publish a version by other rules, from the scores that the lake holds: no model is loaded.

        Args:
            dataset: The version whose recipe is changed, ``NAME`` or ``NAME@VERSION``.
            changes: Values at dotted keys, as for `Recipe.with_`: rules, ``balance.cap``,
                ``association.max_uses`` and ``association.at_least``.
            name: Name to publish under, by default the version's.

        Returns:
            The new version, or the newest one if the content is the same.

        Raises:
            PairmillError: Another setting is changed, or the rules let items through that have no scores yet: `run`
                makes them. LeaseHeld if another process writes to the lake.
        """
        from pairmill.tasks.recut import recut

        with create_or_open(self.lake.uri) as lake:
            published = recut(lake, dataset, changes, name)
            return PairDataset(self.lake, datasets.find(lake, f"{published.name}@{published.version}"))

    def import_scores(self, file: str | Path, name: str, key: str, column: str = "") -> ImportedScores:
        """Import other people's scores of pictures from a Parquet file; rules of recipes that name it then read it.

        Args:
            file: A Parquet file.
            name: The column under which rules read the score; the recipe lists it in ``imported``.
            key: The file's column that names pictures: 'sha256', 'image_id' or 'url'.
            column: The file's column of numbers, by default ``name``.

        Raises:
            PairmillError: The file, a column or a value is not fit. LeaseHeld if another process writes to the lake.
        """
        with (
            create_or_open(self.lake.uri) as lake,
            writing(lake, uuid.uuid4().hex, f"import scores {name}") as writer,
        ):
            return import_scores(writer, Path(file), name, key, column or name)

    def diff(self, before: str, after: str) -> VersionDiff:
        """Return the difference of two versions: pairs gained and lost by cause and group, drift of values."""
        return version_diff(self.lake, datasets.find(self.lake, before), datasets.find(self.lake, after))

    def clusters(self, dataset: str, most: int = 30) -> list[NamedCluster]:
        """Return the largest clusters of a version with their names, and sizes before and after the cap."""
        with Gallery(gallery_file(self.lake, datasets.find(self.lake, dataset))) as gallery:
            return named_clusters(gallery, most)

    def concepts(self, dataset: str, names: Sequence[str]) -> "list[Concept]":
        """Return for each class name its pairs by CLIP and by text, and the rule that drops the rest.

        Loads the version's CLIP to embed the names. Raises PairmillError if it is not there, or for a single name.
        """
        from pairmill.flows.api.version_clip import version_clip
        from pairmill.tasks.release.gallery.concepts import concepts

        version = datasets.find(self.lake, dataset)
        return concepts(self.lake, version, names, version_clip(self.lake, version)[0].embed_texts)

    def calibrate(
        self, dataset: str, rule: str, wrong: float = 0.05, confidence: float = 0.9, candidates: Sequence[float] = ()
    ) -> JudgedThreshold:
        """Return the loosest threshold of a rule on images at which at most the share ``wrong`` of kept pairs is wrong.

        The judgements are those of `pairmill browse`, and of files given to `pairmill calibrate`.

        Raises:
            PairmillError: Nobody has judged a sample of this rule and version.
        """
        version = datasets.find(self.lake, dataset)
        sample = sample_of(judged_samples(self.lake), version, rule)
        if sample is None:
            raise PairmillError(f"nobody has judged a sample of rule '{rule}' of {version}; see `pairmill calibrate`.")
        with Gallery(gallery_file(self.lake, version)) as gallery:
            return judged_threshold(gallery, sample, wrong, confidence, candidates)

    def forget(self, digest: str) -> Forgettable:
        """Remove the scores of one scorer for good; `scorers` has the digests, of which a beginning is enough.

        Returns:
            What was removed, and the versions with the rules that can no longer be evaluated.

        Raises:
            PairmillError: No scorer or several begin with ``digest``, or it has no rows. LeaseHeld if another process
                writes to the lake.
        """
        from pairmill.tasks.upkeep.forget import forget

        with create_or_open(self.lake.uri) as lake:
            return forget(lake, digest)[0]

    def export(
        self,
        dataset: str,
        to: str,
        format: "Format" = "webdataset",
        captions: "Captions" = "chosen",
        text: str = "text1",
        shuffle: int | None = None,
    ) -> "Exported":
        """Write a version's files to a folder or s3:// prefix, as `pairmill export` does; see `PairDataset.export`."""
        return self.dataset(dataset).export(to, format, captions, text, shuffle)

    def why(self, item: str, dataset: str = "") -> dict[str, Any]:
        """Return what `pairmill why` prints of an image, else of a sentence, else of a document, by parts.

        Args:
            item: An id, a sha256, the address of a picture or page, or a sentence's text.
            dataset: The version to explain, by default the newest that decided on the item.

        Raises:
            PairmillError: The lake does not know the item or the dataset.
        """
        with self.lake.one_snapshot():
            found = find_item(self.lake, item)
            scope = scope_of(self.lake, dataset_about(self.lake, found, dataset))
            if found.images:
                return explain_image(self.lake, found.images[0], scope)
            if found.sentences:
                return explain_sentence(self.lake, found.sentences[0], scope)
            if found.documents:
                return explain_document(self.lake, found.documents[0], scope)
            return {"addresses": found.addresses, "quarantine": found.quarantine}


def open_lake(place: str | os.PathLike[str], version: int | None = None) -> OpenLake:
    """Open the lake in a folder, or of a lake.yaml, to read it.

    ``version`` is a snapshot's number (`OpenLake.snapshot`): all tables are read as of then, whatever is written later.

    Raises PairmillError, with the remedy, if there is no such lake or snapshot, or it cannot be read.
    """
    return OpenLake(create_or_open(place, read_only=True, at=version))
