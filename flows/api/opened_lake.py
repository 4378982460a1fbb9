"""Answer questions about a lake that is open for reading: one method a question.

Methods import their modules when they are called: the command line builds its options from this class, in 0.05 CPU s.
"""

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pairmill.flows.api.question import Rows, question

if TYPE_CHECKING:
    from pairmill.catalog.lake.lake import Lake
    from pairmill.catalog.write.import_scores import ImportedScores
    from pairmill.flows.api import answer_types as answers
    from pairmill.flows.api.pair_dataset import PairDataset
    from pairmill.tasks.release.export.export import Exported
    from pairmill.tasks.release.export.export_forms import Captions, Format
    from pairmill.tasks.release.export.picture_folder import Placing
    from pairmill.tasks.release.export.pictures import Metadata


@dataclass(frozen=True)
class OpenLake:
    """A lake opened for reading. Each call reads its newest state, or the pinned snapshot; a run may write meanwhile.

    Use it in one thread at a time, and close it, or use it in a ``with``.
    """

    lake: "Lake"
    _scopes: "dict[str, answers.Scope]" = field(default_factory=dict, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<lake {self.lake.uri}: {', '.join(map(str, self.datasets())) or 'no dataset yet'}>"

    def _repr_html_(self) -> str:
        """Draw the published versions in a notebook."""
        from pairmill.flows.api.notebook_html import lake_html

        return lake_html(self.lake.uri, self.versions())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the lake; nothing can be read afterwards."""
        self.lake.close()

    def sql(self, query: str) -> "answers.Relation":
        """Return the result of a SELECT as a DuckDB relation: ``.df()``, ``.arrow()``, ``.pl()``, ``.fetchall()``.

        The SELECT runs when its rows are fetched, while the lake is open. Raises BadQuery for another statement, and
        for one that DuckDB refuses.
        """
        from pairmill.catalog.queries.sql.sql_answer import relation

        return relation(self.lake, query)

    @question("sql", 'pairmill sql "SELECT count(*) FROM images"', not_for_agents=("allow_files",))
    def rows(self, query: str, allow_files: bool = False) -> Rows:
        """Query the lake in SQL.

        One SELECT of DuckDB's SQL, which reads this lake and no other file. The connection stays so restricted.

        Args:
            query: A SELECT; it reads this lake and no other file.
            allow_files: Any statement, on any file: COPY (SELECT …) TO 'pairs.csv'.

        Raises:
            BadQuery: DuckDB refuses the statement, or it reads another file.
        """
        from pairmill.catalog.queries.sql.sql_answer import answer, answer_confined

        return Rows(*(answer if allow_files else answer_confined)(self.lake, query))

    def datasets(self) -> "list[PairDataset]":
        """Return all published versions of all datasets, ordered by name and version."""
        from pairmill.catalog.queries import datasets
        from pairmill.flows.api.pair_dataset import PairDataset

        return [PairDataset(self.lake, version) for version in datasets.published(self.lake)]

    def dataset(self, spec: str) -> "PairDataset":
        """Return version ``NAME@VERSION``, or the newest of ``NAME``. Raises PairmillError if there is none."""
        from pairmill.flows.api.pair_dataset import PairDataset

        return PairDataset(self.lake, self._version(spec))

    @property
    def snapshot(self) -> int:
        """Number of the snapshot that is read now; ``open(…, version=number)`` opens it again until it expires."""
        from pairmill.catalog.lake.snapshot import current_snapshot

        return current_snapshot(self.lake.query)

    @question("status", "pairmill status --lake lake")
    def status(self) -> "answers.LakeStatus":
        """Show row counts, the newest versions, the process that writes, and the last runs with their tokens."""
        from pairmill.catalog.queries.figures.lake_status import lake_status

        return lake_status(self.lake)

    @question("datasets", "pairmill datasets --format csv")
    def versions(self) -> "list[answers.PublishedVersion]":
        """List the published versions of all datasets."""
        from pairmill.catalog.queries import datasets

        return [datasets.published_version(self.lake, each) for each in datasets.published(self.lake)]

    @question("quarantine", "pairmill quarantine")
    def quarantine(self) -> "list[answers.FaultCount]":
        """Count the items that failed, by reason, stage and source."""
        from pairmill.catalog.pending.quarantine import fault_counts

        return fault_counts(self.lake)

    def quarantined_share(self, run_id: str) -> float:
        """Return the share of quarantined items among the images and faults that a run read; 0 if it read nothing."""
        from pairmill.catalog.pending.quarantine import quarantined_share

        return quarantined_share(self.lake, run_id)

    def caption_statuses(self, scorer: str) -> dict[str, int]:
        """Count the captions of the scorer with this digest by status, most frequent first, in current documents."""
        from pairmill.catalog.queries.captioned import by_status

        return by_status(self.lake, scorer)

    @question("why", "pairmill why https://example.org/fox.jpg")
    def why(self, item: str, dataset: str = "") -> "answers.Explanation":
        """Show an item's origin, its scores, and the rule that dropped it.

        Args:
            item: An id, a sha256, the address of a picture or page, or a sentence's text.
            dataset: The version to explain, such as 30m@3; default: the newest that decided on the item.

        Raises:
            PairmillError: The lake does not know the item or the dataset.
        """
        from pairmill.catalog.queries.explain.explanation import explain
        from pairmill.flows.api.asked_item import dataset_about, find_item

        with self.lake.one_snapshot():
            found = find_item(self.lake, item)
            return explain(self.lake, found, self._scope(dataset_about(self.lake, found, dataset)))

    def item_page(self, kind: str, key: str, dataset: str = "") -> "answers.ItemPage | None":
        """Explain an 'image' or 'sentence' by a version, '' for the newest rows alone; None if the lake lacks it."""
        from pairmill.catalog.queries.explain.explanation import item_page

        return item_page(self.lake, kind, key, self._scope(self._version(dataset) if dataset else None))

    @question()
    def funnel(self, dataset: str) -> "list[answers.FunnelStep]":
        """Count the pictures and sentences that each rule of a version received and dropped, in order of the cut."""
        return self.dataset(dataset).funnel()

    @question()
    def sample(self, dataset: str, n: int = 5) -> list[dict[str, Any]]:
        """Return ``n`` pairs of a version (1 to 50, always the same), with their texts and similarities."""
        from pairmill.catalog.queries.datasets import sample_pairs
        from pairmill.catalog.terms.error import PairmillError

        if not 1 <= n <= 50:
            raise PairmillError(f"n is {n}; ask for 1 to 50 pairs.")
        return sample_pairs(self.lake, self._version(dataset), n)

    @question("diff", "pairmill diff 30m@2 30m@3")
    def diff(self, before: str, after: str) -> "answers.VersionDiff":
        """Compare two dataset versions: pairs gained and lost by cause and group, drift of values.

        Args:
            before: A version, as NAME@V.
            after: Another, as NAME@V.
        """
        from pairmill.catalog.queries.compare.version_diff import version_diff

        return version_diff(self.lake, self._version(before), self._version(after))

    @question()
    def proofs(self, dataset: str) -> "list[answers.Proof]":
        """Return what `pairmill prove` found of a version: the newest proof by each judge; [] without one."""
        from pairmill.catalog.queries.figures.proofs import proofs

        return proofs(self.lake, self._version(dataset))

    def report_content(self, dataset: str) -> dict[str, Any]:
        """Return the variables of a version's report by their names in its templates: figures, tables, pictures."""
        from pairmill.flows.api.report_content import report_content

        return report_content(self.lake, self._version(dataset))

    def pictured_diff(self, before: str, after: str, images: int = 12) -> "answers.VersionDiff":
        """Return the `diff` of two versions with up to ``images`` example images of each cause."""
        from pairmill.catalog.queries.compare.version_diff import version_diff

        return version_diff(self.lake, self._version(before), self._version(after), images)

    def differing(self, before: str, after: str, kind: str, cause: str) -> "answers.ImageSet":
        """Return the images of a kind ('gained', 'lost', 'changed') and cause of `differences`, to filter by."""
        from pairmill.catalog.queries.compare.version_diff import changed_ids
        from pairmill.catalog.queries.gallery.gallery_query import ImageSet

        return ImageSet(changed_ids(self.lake, self._version(before), self._version(after), kind, cause), "image_id")

    @question("concepts", "pairmill concepts 30m@3 --names classes.txt", tool=False)
    def concepts(self, dataset: str, names: Sequence[str] = (), most: int = 30) -> "list[answers.Concept]":
        """Count the pictures of a version's concepts, kept and dropped by each rule.

        Concepts are the given names, matched by CLIP and by text; without names they are the largest clusters, named by
        their most distinctive words, with sizes before and after the cap. The version's CLIP embeds the names.

        Args:
            dataset: The version, or the newest of a name.
            names: Class names, one a line; default: the largest clusters. A picture that another word describes better
                counts for none.
            most: Without names: how many clusters, largest first.

        Raises:
            PairmillError: The CLIP is not there.
        """
        if not names:
            with self.gallery(dataset) as gallery:
                return gallery.named_clusters(most)
        from pairmill.tasks.release.gallery.concepts import clip_of, concepts

        version = self._version(dataset)
        return concepts(self.lake, version, names, clip_of(self.lake, version))

    def rules(self, dataset: str) -> "list[answers.RuleView]":
        """Return each rule of a version with histograms of its scores, and the items nearest to its thresholds."""
        from pairmill.catalog.queries.figures.report import plan_of
        from pairmill.catalog.queries.gallery.gallery_views import rule_views

        with self.gallery(dataset) as gallery:
            return rule_views(gallery, plan_of(self.lake, self._version(dataset)))

    def beside_rule(self, dataset: str, kind: str, rule: str, keep: str) -> dict[str, list[dict[str, Any]]]:
        """Return the items nearest to the thresholds of the predicate ``keep``, by side: 'below 100', 'from 100'.

        ``kind`` is 'image' or 'sentence', ``rule`` the name of the version's rule that ``keep`` would replace.
        """
        from pairmill.catalog.queries.gallery.gallery_views import beside_predicate

        with self.gallery(dataset) as gallery:
            return beside_predicate(gallery, kind, rule, keep)

    def try_recut(
        self, dataset: str, changes: Mapping[str, Any], name: str = "", shown: Mapping[str, int] | None = None
    ) -> "answers.CutTrial":
        """Try a `recut` without publishing: return missing scores, the funnel, and the images nearest each threshold.

        The arguments and errors are those of `recut`; ``shown`` has the number of images on each side by rule.
        """
        from pairmill.tasks.recut import try_recut

        return try_recut(self.lake, dataset, changes, name, shown)

    def marks_on(self, dataset: str, sha256s: list[str]) -> dict[str, str]:
        """Return sha256 -> people's verdicts on these pictures, also those that wait or are in no version yet."""
        from pairmill.catalog.queries.edit_preview import marks_on

        return marks_on(self.lake, dataset.partition("@")[0], sha256s)

    def captions_on(self, dataset: str, sha256s: list[str]) -> dict[str, list[tuple[str, str]]]:
        """Return sha256 -> (captioner, text) of these pictures if the version has several captioners, else {}."""
        from pairmill.catalog.queries.captioned import captions_on

        plan = self._scope(version := self._version(dataset)).plan
        return captions_on(self.lake, plan, version.commit, sha256s) if plan else {}

    def unpublished(self, dataset: str) -> "tuple[list[tuple[str, str, int]], list[Any]]":
        """Return what the next version changes, by rule before, rule after, number; and what a run must make first."""
        from pairmill.tasks.recut import unpublished

        return unpublished(self.lake, dataset)

    @question("calibrate", "pairmill calibrate 30m@3 clip_filter --wrong 'at most 5%' --confidence 90%", tool=False)
    def calibrate(
        self, dataset: str, rule: str, wrong: float = 0.05, confidence: float = 0.9, candidates: Sequence[float] = ()
    ) -> "answers.JudgedThreshold":
        """Choose a rule's threshold from people's judgements, with a bound on the share of wrong pairs.

        The judgements are those of `pairmill browse`, and of files given to `pairmill calibrate`.

        Args:
            dataset: A version that the rule keeps enough of: set it loosely.
            rule: A rule on images with a lower threshold.
            wrong: The most wrong pairs among the kept ones.
            confidence: The chance that no larger share is wrong.
            candidates: Thresholds to test, chosen before any label is seen; default: six.

        Raises:
            PairmillError: Nobody has judged a sample of this rule and version.
        """
        with self.judging(dataset) as judging:
            return judging.calibrate(rule, wrong, confidence, candidates)

    def judged_samples(self) -> "tuple[answers.JudgedSample, ...]":
        """Return the samples that were drawn for judging, with people's judgements, the newest first."""
        from pairmill.catalog.queries.judge.judged_samples import judged_samples

        return judged_samples(self.lake)

    @contextmanager
    def judging(self, dataset: str) -> "Iterator[answers.VersionJudging]":
        """Open a version for judging in the ``with`` block: draw samples of its rules, read and log judgements."""
        from pairmill.catalog.queries.judge.judging import VersionJudging

        version = self._version(dataset)
        with self.gallery(dataset) as gallery:
            yield VersionJudging(self.lake, version, self._scope(version), gallery)

    @property
    def newest_commit(self) -> int:
        """Highest commit number, 0 without a commit. Rows read earlier are current while it stays the same."""
        from pairmill.catalog.write.runs import last_commit

        return last_commit(self.lake)

    @property
    def newest_removal(self) -> int:
        """Highest commit number of a removal, 0 without one. Rows read before it may have been removed."""
        from pairmill.catalog.write.recorded_removals import last_removal

        return last_removal(self.lake)

    def picture_vectors(self, dataset: str = "") -> "answers.ImageVectors | None":
        """Return the CLIP vectors of a version's pictures ('': of all), memory-mapped; None if there are none."""
        from pairmill.catalog.queries.gallery.image_vectors import image_vectors

        return image_vectors(self.lake, self._version(dataset) if dataset else None)

    def gallery(self, dataset: str = "") -> "answers.Gallery":
        """Open the gallery of a version ('': of the whole lake), a file of a row per image; build it if missing."""
        from pairmill.catalog.queries.gallery.gallery_file import gallery_file
        from pairmill.catalog.queries.gallery.gallery_query import Gallery

        return Gallery(gallery_file(self.lake, self._version(dataset) if dataset else None))

    def recut(self, dataset: str, changes: Mapping[str, Any], name: str = "") -> "PairDataset":
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
                computes them. LeaseHeld if another process writes to the lake.
        """
        from pairmill.catalog.lake.opening import create_or_open
        from pairmill.tasks.recut import recut

        with create_or_open(self.lake.uri) as lake:
            published = recut(lake, dataset, changes, name)
            return self.dataset(f"{published.name}@{published.version}")

    def import_scores(self, file: str | Path, name: str, key: str, column: str = "") -> "ImportedScores":
        """Import other people's scores of pictures from a Parquet file; rules of recipes that name it then read it.

        Args:
            file: A Parquet file.
            name: The column under which rules read the score; the recipe lists it in ``imported``.
            key: The file's column that names pictures: 'sha256', 'image_id' or 'url'.
            column: The file's column of numbers, by default ``name``.

        Raises:
            PairmillError: The file, a column or a value is not fit. LeaseHeld if another process writes to the lake,
                and did not end within a minute.
        """
        from pairmill.catalog.lake.opening import create_or_open
        from pairmill.catalog.write.import_scores import import_scores
        from pairmill.catalog.write.lease import writing

        purpose, wait = f"import scores {name}", 60.0
        with create_or_open(self.lake.uri) as lake, writing(lake, uuid.uuid4().hex, purpose, wait) as writer:
            return import_scores(writer, Path(file), name, key, column or name)

    def forget(self, digest: str) -> "answers.Forgettable":
        """Remove the scores of one scorer for good, named by its digest in the table `scorers`, or a unique prefix.

        Returns:
            What was removed, and the versions with the rules that can no longer be evaluated.

        Raises:
            PairmillError: No scorer or several begin with ``digest``, or it has no rows. LeaseHeld if another process
                writes to the lake.
        """
        from pairmill.catalog.lake.opening import create_or_open
        from pairmill.catalog.lake.side_folders import reports_folder
        from pairmill.tasks.upkeep.removal import forget

        with create_or_open(self.lake.uri) as lake:
            return forget(lake, digest, reports_folder(lake.uri))[0]

    def exports(self, dataset: str) -> list[tuple[str, str, int]]:
        """Return (address, format, number of rows) of each recorded export of a version."""
        from pairmill.catalog.queries.export import exports

        return exports.of_version(self.lake, self._version(dataset))

    def selection(
        self, specs: Sequence[str], split: str = "", size: str = "", pairs: int | None = None, seed: int = 0,
        list: str | None = None,
    ) -> "answers.Selection":  # fmt: skip
        """Return the pairs of versions ``NAME[@V][:WEIGHT]`` that an export takes. Raises PairmillError as `select`."""
        from pairmill.catalog.queries.export.selected_pairs import select
        from pairmill.catalog.write.acts import pictures_in

        pictures = None if list is None else pictures_in(self.lake, Path(list))
        return select(self.lake, specs, split, size, pairs, seed, pictures)

    def export(
        self,
        dataset: str | Sequence[str],
        to: str,
        format: "Format" = "webdataset",
        *,
        split: str = "",
        size: str = "",
        pairs: int | None = None,
        seed: int = 0,
        list: str | None = None,
        captions: "Captions" = "chosen",
        text: str = "text1",
        shuffle: int | None = None,
        grow: bool = False,
        metadata: "Metadata" = "stripped",
        pictures: "Placing" = "copy",
        trigger: str = "",
        prefix: str = "",
        suffix: str = "",
        bucket: int | None = None,
        contact: str = "",
    ) -> "Exported":
        """Write a version, or a mixture of versions, to the folder or s3:// prefix ``to``, as `pairmill export` does.

        ``dataset``: ``NAME@V``, or for a mixture a list of ``NAME@V:WEIGHT``. ``pairs``: how many pairs are drawn by
        ``seed``; None takes all, or the largest mixture. ``list``: a file of the pictures to take. ``pictures`` to
        ``bucket`` are of the format 'folder'. Holds the lake's lease meanwhile. Where this user may not write to the
        lake, the export is not recorded.

        Raises PairmillError as `tasks.release.export.export.export`.
        """
        from pairmill.catalog.lake.opening import open_as_allowed
        from pairmill.tasks.release.export.export import export
        from pairmill.tasks.release.export.picture_folder import FolderOptions

        with open_as_allowed(self.lake.uri) as lake:
            specs = [dataset] if isinstance(dataset, str) else dataset
            selected = OpenLake(lake).selection(specs, split, size, pairs, seed, list)
            first, options = selected.versions[0], FolderOptions(pictures, trigger, prefix, suffix, bucket)
            return export(
                lake, first.name, first.version, to, format, captions=captions, text=text, shuffle=shuffle, grow=grow,
                metadata=metadata, selected=selected, options=options, contact=contact,
            )  # fmt: skip

    def edit(
        self,
        dataset: str,
        field: str = "caption",
        *,
        find: str | None = None,
        regex: str | None = None,
        replace: str | None = None,
        prefix: str | None = None,
        table: str | None = None,
        picture: str | None = None,
        text: str | None = None,
        dry_run: bool = False,
    ) -> "answers.EditPreview":
        """Store an edit of texts as `pairmill edit` does, for the next cut; return what it changes in the version.

        Give one of ``find`` or ``regex`` with ``replace``, ``prefix``, ``table``, ``picture`` with ``text``.
        ``dry_run`` stores nothing. Raises PairmillError if the edit is not valid, or changes no pair.
        """
        from pairmill.catalog.lake.opening import create_or_open
        from pairmill.flows.api.text_edits import TextEdit, edit_texts, preview_text_edit

        edit = TextEdit(field, find, regex, replace, prefix, table, picture, text)
        with create_or_open(self.lake.uri, read_only=dry_run) as lake:
            return (preview_text_edit if dry_run else edit_texts)(lake, dataset, edit)[-1]

    def edits(self, dataset: str) -> "list[answers.Act]":
        """Return the acts on a dataset: edits of texts and verdicts on pictures, oldest first, undone ones too."""
        from pairmill.catalog.write.acts import acts_of

        return acts_of(self.lake, self._version(dataset).name)

    def undo_edit(self, dataset: str, edit: str = "") -> "answers.Act":
        """Undo an edit of a dataset by its id, or by a unique prefix of it, '' for the newest; return the edit.

        The next cut publishes the texts without it. Raises PairmillError if the dataset has no such edit, or it is
        undone already.
        """
        from pairmill.catalog.lake.opening import create_or_open
        from pairmill.flows.api.picture_acts import undo_act

        with create_or_open(self.lake.uri) as lake:
            return undo_act(lake, dataset, edit)[0]

    def _version(self, spec: str) -> "answers.Dataset":
        """Return the version that ``spec`` names. Raises PairmillError if there is none."""
        from pairmill.catalog.queries import datasets

        return datasets.find(self.lake, spec)

    def _scope(self, version: "answers.Dataset | None") -> "answers.Scope":
        """Return the rows that explain items: of a version, cached since they never change, or of the whole lake."""
        from pairmill.catalog.queries.explain.why import scope_of

        if version is None:
            return scope_of(self.lake, None)
        key = f"{version} {version.run_id}"
        if key not in self._scopes:
            self._scopes[key] = scope_of(self.lake, version)
        return self._scopes[key]


def open_lake(place: str | os.PathLike[str], version: int | None = None) -> OpenLake:
    """Open a lake for reading: ``place`` is its folder, or a lake.yaml that describes it.

    ``version`` is a snapshot's number (`OpenLake.snapshot`), at which all tables are read, whatever is written later.

    Raises PairmillError, with the remedy, if there is no such lake or snapshot, or it cannot be read.
    """
    from pairmill.catalog.lake.opening import create_or_open

    return OpenLake(create_or_open(place, read_only=True, at=version))
