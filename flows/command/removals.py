"""Implement `takedown`, `forget` and `drop`: preview, ask, remove, print the result, write the report."""

import json
import re
import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.lake.side_folders import reports_folder
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import content_id
from pairmill.catalog.upkeep.forgotten_scorer import datasets_made_with, forgettable
from pairmill.catalog.upkeep.taken_items import Subject, near_hash, pictures_of
from pairmill.catalog.write.recorded_removals import recorded_report, removed_before
from pairmill.catalog.write.version_names import version_names
from pairmill.flows.api.asked_item import as_stored, find_item
from pairmill.flows.api.opened_lake import OpenLake
from pairmill.flows.run.outcome import report_path
from pairmill.ops.ban_list import NEAR_BITS, BanList, perceptual_hash, read_hashes
from pairmill.tasks.upkeep import removal

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import Dataset, Forgettable

SHOWN = 20
_ID = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HOST = re.compile(r"[A-Za-z0-9.-]+")
_ADDRESS = re.compile(r"\w+://\S+")  # a text may contain one


def takedown(args: Namespace) -> int:
    """Remove pictures and documents from a lake, with everything derived from them, and ban them from later runs."""
    check_is_lake(args.lake)
    subject, hashes = _subject(args)
    with create_or_open(args.lake) as lake:
        subject = _with_items(lake, subject, args.item)
        if args.like:
            subject = _like(lake, subject, hashes[0], args)
        taken, versions = removal.preview(lake, subject)
        before = removed_before(lake, subject.names)
        for each in before:
            when = f"{each.at:%Y-%m-%d at %H:%M} UTC"
            print(visible(f"{each.name}: removed on {when} ({each.reason}), and kept out since"))
        if taken.is_nothing and not hashes and {each.name for each in before} >= {*subject.names}:
            return _finish(args, lake, before[-1].takedown_id)
        counts = (
            f"{taken.documents:,} documents, {taken.pictures:,} pictures in {taken.images:,} places, "
            f"{taken.sentences:,} sentences, fused texts of {taken.fused:,} other pictures"
        )
        going = [counts, *(f"amends {version}" for version in versions)]
        question = "remove it for good?" if not taken.is_nothing else "nothing is here; ban it?"
        listed = [("phash", str(each)) for each in hashes]
        done = partial(removal.take_down, lake, subject, args.reason, reports_folder(args.lake), listed)
        return _remove(args, going, question, done, _describe_takedown)


def import_bans(args: Namespace) -> int:
    """Ban the pictures that a list of hashes names, and remove those that the lake has; print counts alone."""
    try:
        with open(args.file, encoding="utf-8") as lines:
            listed = read_hashes(lines, args.kind)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", "") or "it is no text"
        raise PairmillError(f"{args.file}: {why}. Name a list.") from error
    except PairmillError as error:
        raise PairmillError(f"{args.file}, {error}") from error
    by_kind = defaultdict[str, list[str]](list)
    for kind, value in listed:
        by_kind[kind].append(value)
    with create_or_open(args.lake) as lake:
        held = tuple(removal.held_of(lake, BanList.of_entries(by_kind), args.kind == "sha256"))
        going = [f"{len(listed):,} hashes ({args.kind}) to ban; {len(held):,} pictures of the lake are among them"]
        subject, question = Subject(pictures=held), "ban them, and remove these pictures for good?"
        done = partial(removal.take_down, lake, subject, args.reason, reports_folder(args.lake), listed)
        return _remove(args, going, question, done, _describe_takedown if held else lambda _: ("they are banned",))


def _finish(args: Namespace, lake: Lake, takedown_id: str) -> int:
    """Finish the unfinished removals, print a line for each, and write the report of ``takedown_id``."""
    if not args.dry_run:
        for line in removal.finish_unfinished(lake, reports_folder(args.lake)):
            print(visible(line), flush=True)
        _write_report(args.report, recorded_report(lake, takedown_id))
    return 0


def forget(args: Namespace) -> int:
    """Remove the scores of one scorer for good, after listing the rules that lose them, and a confirmation."""
    check_is_lake(args.lake)
    with create_or_open(args.lake, read_only=args.dry_run) as lake:
        found = forgettable(lake, args.scorer)
        going = _preview_scorer(found, datasets_made_with(lake, found))
        question, reports = "remove these scores for good?", reports_folder(args.lake)
        return _remove(args, going, question, lambda: removal.forget(lake, found.digest, reports)[1], _describe_erasure)


def drop(args: Namespace) -> int:
    """Delete a version's published rows, after the user has typed its exact name."""
    check_is_lake(args.lake)
    with create_or_open(args.lake) as lake:
        dataset = _exactly(lake, args.dataset)
        about = f"{dataset.n_pairs:,} pairs, published {dataset.created_at:%Y-%m-%d %H:%M}"
        exports = [f"export {uri} ({format}, {rows:,} pairs)"
                   for uri, format, rows in OpenLake(lake).exports(str(dataset))]  # fmt: skip
        stays = ["documents, pictures and scores, for other versions and the next run", *exports]
        report = report_path(lake.uri, dataset)
        stays += [f"report {report}"] if report.exists() else []
        going = [f"{dataset}: {about}. What is dropped cannot be put back.", *(f"stays: {line}" for line in stays)]

        def dropped(report: dict[str, Any]) -> Iterator[str]:
            n = report["rows"]
            rows = f"{n['pairs']:,} pairs, {n['decisions']:,} decisions and its funnel"
            yield f"dropped {dataset}: {rows}; a later run makes a version of another number"

        remove = partial(removal.drop, lake, lambda: _exactly(lake, args.dataset))
        return _remove(args, going, f"write {dataset} to drop it:", remove, dropped, (str(dataset).lower(),))


def _remove(
    args: Namespace,
    going: Iterable[str],
    question: str,
    remove: Callable[[], dict[str, Any]],
    done: Callable[[dict[str, Any]], Iterable[str]],
    answers: tuple[str, ...] = ("y", "yes"),
) -> int:
    """Preview, ask, remove, print, and write the report. Raise PairmillError without one of ``answers``."""
    for line in going:
        print(visible(line), flush=True)
    if args.dry_run:
        return 0
    if args.yes in (None, False):
        is_asked = sys.stdin.isatty()
        if is_asked:
            print(question, end=" ", flush=True)
        if not is_asked or sys.stdin.readline().strip().removesuffix(".").lower() not in answers:
            raise PairmillError("nothing was removed. Look at `--dry-run`, then add --yes.")
    report = remove()
    for line in done(report):
        print(visible(line), flush=True)
    _write_report(args.report, report)
    return 0


def _write_report(path: str, report: dict[str, Any]) -> None:
    """Write the report of a removal as JSON to ``path``; do nothing if ``path`` is ''."""
    if path:
        text = json.dumps(report, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        Path(path).write_text(text, encoding="utf-8")
        print(visible(f"report: {path}"))


def _subject(args: Namespace) -> tuple[Subject, tuple[int, ...]]:
    """Return the items that the options name, and the perceptual hash of the picture of ``--like``, () without one."""
    for document in args.document:
        if not _ID.fullmatch(document):
            raise PairmillError(
                f"--document {document}: a document's id has 32 hex digits; `pairmill why URL` shows it."
            )
    for host in args.domain:
        if not _HOST.fullmatch(host):
            raise PairmillError(f"--domain {host}: name a host such as example.org; --url takes addresses.")
    pictures = tuple(content_id(_bytes(file)) for file in args.image)
    hashes: tuple[int, ...] = ()
    if args.like:
        found = perceptual_hash(_bytes(args.like))
        if found is None:
            raise PairmillError(f"--like {args.like}: this file is no picture that can be decoded.")
        hashes = (found,)
    subject = Subject(tuple(args.url), tuple(args.domain), pictures, tuple(args.document))
    if subject == Subject() and not hashes and not args.item:
        raise PairmillError("say what goes: an item as `pairmill why` takes it, --url, --domain, --image, --like or "
                            "--document.")  # fmt: skip
    return subject, hashes


def _with_items(lake: Lake, subject: Subject, items: list[str]) -> Subject:
    """Return the subject with the pictures, documents and addresses that ``items`` name, as `pairmill why` finds them.

    An item that the lake does not know may be an address or a picture's file, which is banned, or an item that was
    removed before. Raises PairmillError for any other unknown item, for an unknown address that ends in a slash, which
    may mean one page or all below it, and for a sentence.
    """
    urls, pictures, documents = list(subject.urls), list(subject.pictures), list(subject.documents)
    names = []
    for item in items:
        stored = as_stored(item)
        is_address = bool(_ADDRESS.fullmatch(stored)) or Path(stored).is_absolute()
        below = f"To remove and ban everything below this address: --url {stored}"
        names.append(stored := stored[:32] if _DIGEST.fullmatch(stored) else stored)
        try:
            found = find_item(lake, item)
        except PairmillError:
            if removed_before(lake, (stored,)):
                pass
            elif Path(stored).is_file():
                pictures.append(content_id(_bytes(item)))
            elif _ADDRESS.fullmatch(stored) and stored.endswith("/"):
                raise PairmillError(f"lake '{lake.uri}' knows no page '{stored}'. {below}") from None
            elif _ADDRESS.fullmatch(stored):
                urls.append(stored)
            else:
                raise
            continue
        of_rows = [row["item"] for row in found.quarantine] + [row["url"] for row in found.addresses]
        is_held = bool(found.images or found.documents)
        if is_address and stored.endswith("/") and not is_held:
            raise PairmillError(f"lake '{lake.uri}' holds no page '{stored}'. {below}")
        if is_address and not stored.endswith("/"):  # an address that ends so would name all below it too
            urls.append(stored)
        elif not is_held:
            urls += (each for each in of_rows if ("://" in each or each.startswith("/")) and not each.endswith("/"))
        pictures += pictures_of(lake, found.images)
        documents += (row["document_id"] for row in found.documents)
        if not (is_held or found.quarantine or found.addresses):
            raise PairmillError(f"'{item[:80]}' is a sentence. Name a picture or a document that it stands in: "
                                f"pairmill why '{found.sentences[0]}'")  # fmt: skip
    kinds = (tuple(dict.fromkeys(kind)) for kind in (urls, subject.hosts, pictures, documents, names))
    return Subject(*kinds)


def _bytes(file: str) -> bytes:
    """Return a file's bytes. Raises PairmillError if it cannot be read."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise PairmillError(f"{file}: {error.strerror or error}. Name a picture's file.") from error


def _like(lake: Lake, subject: Subject, phash: int, args: Namespace) -> Subject:
    """Print the pictures near ``phash``; return the subject with them. PairmillError if ``--yes`` differs."""
    found = near_hash(lake, phash, NEAR_BITS)
    for sha256, url, bits in found[:SHOWN]:
        print(visible(f"{sha256}  {bits} of 64 bits differ  {url}"))
    if len(found) > SHOWN:
        print(f"and {len(found) - SHOWN:,} more")
    if not args.dry_run and args.yes != len(found):
        raise PairmillError(f"{len(found):,} pictures look like {args.like}. Look at them in `pairmill browse`, then "
                            f"say --yes {len(found)}.")  # fmt: skip
    return replace(subject, pictures=(*subject.pictures, *(row[0] for row in found)))


def _preview_scorer(found: "Forgettable", again: tuple[str, ...]) -> Iterator[str]:
    """Yield the preview's lines: rows by table, versions that read them, recipes whose next run computes them again."""
    rows = ", ".join(f"{n:,} of {table}" for table, n in found.rows.items())
    if not rows:
        yield f"scorer {found.name} {found.digest}: its rows are deleted; their bytes are still to be erased"
        return
    yield f"scorer {found.name} {found.digest}: {rows}; {found.bytes / 1e6:,.1f} MB"
    for version, steps in found.versions:
        lost = f"{', '.join(steps)} can no longer be evaluated" if steps else "no rule reads these scores"
        yield f"{version}: {lost}; its pairs and decisions stay"
    if not found.versions:
        yield "no published version was made with it"
    for name in again:
        yield f"the next run of {name} makes these scores again, if its recipe still asks for them"
    if found.made_from_it:
        yield f"made from it, and kept: {', '.join(found.made_from_it)}"


def _exactly(lake: Lake, spec: str) -> "Dataset":
    """Return the dataset NAME@VERSION. Raises PairmillError for any other form, and for a version that has a tag."""
    dataset = OpenLake(lake).dataset(spec).version
    if spec != str(dataset):
        raise PairmillError(f"'{spec}' is {dataset} now, and may be another version tomorrow. Name the very version: "
                            f"pairmill drop {dataset}")  # fmt: skip
    if names := version_names(lake).get((dataset.name, dataset.version)):
        raise PairmillError(f"{dataset} has the name '{names[0]}', by which others may cite it. To drop it all the "
                            f"same, first run: pairmill tag {dataset} {names[0]} --remove")  # fmt: skip
    return dataset


def _describe_takedown(report: dict[str, Any]) -> Iterator[str]:
    """Yield lines on the results of a takedown, and on the exports that the user must delete."""
    for each in report["versions"]:
        yield f"{each['dataset']}: {each['pairs_removed']:,} pairs taken out, {each['pairs_changed']:,} lost a text"
    for export in report["exports"]:
        # A folder may be the one in which a user's pictures lie.
        way = "" if export["format"] == "folder" else "delete it, or "
        way += "run again, with its own options"
        yield (f"still holds it: {export['uri']}; {way}: pairmill export {export['dataset']} "
               f"--format {export['format']} --to {export['uri']}")  # fmt: skip
    yield from _describe_erasure(report)


def _describe_erasure(report: dict[str, Any]) -> Iterator[str]:
    """Yield lines on how the bytes of removed rows were erased, and on the places that were not reached."""
    done = report["erased"]
    yield (f"erased: {done['rewritten']:,} files rewritten, {done['removed']:,} removed, {done['snapshots']:,} "
           "snapshots expired; reports and caches are made again when asked for")  # fmt: skip
    if done["why"]:
        yield f"catalog not rewritten: {done['why']}. Close what reads the lake, then run `pairmill maintain`."
    for place in report["not_reached"]:
        yield f"not reached: {place}"
