"""Implement `pairmill takedown`: remove pictures and documents, with all that is made from them, and keep them out."""

import re
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import content_id
from pairmill.catalog.upkeep.takedown_record import near_hash
from pairmill.catalog.upkeep.taken_items import Subject, Taken
from pairmill.flows.command.confirmed_removal import confirmed_removal, erased
from pairmill.flows.run.outcome import reports_folder
from pairmill.ops.ban_list import NEAR_BITS, perceptual_hash
from pairmill.tasks.upkeep.removal import preview, take_down

SHOWN = 20
_ID = re.compile(r"[0-9a-f]{32}")
_HOST = re.compile(r"[A-Za-z0-9.-]+")


def takedown(args: Namespace) -> int:
    """Say what goes, ask, remove it, and print what was done and what could not be reached."""
    check_is_lake(args.lake)
    subject, hashes = _subject(args)
    with create_or_open(args.lake) as lake:
        if args.like:
            subject = _like(lake, subject, hashes[0], args)
        taken, versions = preview(lake, subject)
        going = [_counts(taken), *(f"amends {dataset}@{version}" for dataset, version in versions)]
        question = "remove it for good?" if not taken.is_nothing else "nothing is here; ban it?"
        done = partial(take_down, lake, subject, args.reason, reports_folder(args.lake), hashes)
        return confirmed_removal(args, going, question, done, _told)


def _subject(args: Namespace) -> tuple[Subject, tuple[int, ...]]:
    """Return what the options name, and the perceptual hash of the file of ``--like``."""
    for document in args.document:
        if not _ID.fullmatch(document):
            raise PairmillError(
                f"--document {document}: a document's id has 32 hex digits; `pairmill why URL` shows it."
            )
    for host in args.domain:
        if not _HOST.fullmatch(host):
            raise PairmillError(f"--domain {host}: name a host such as example.org; --url takes addresses.")
    pictures = [content_id(_bytes(file)) for file in args.image]
    hashes: tuple[int, ...] = ()
    if args.like:
        found = perceptual_hash(_bytes(args.like))
        if found is None:
            raise PairmillError(f"--like {args.like}: this file is no picture that can be decoded.")
        hashes = (found,)
    subject = Subject(tuple(args.url), tuple(args.domain), tuple(pictures), tuple(args.document))
    if subject == Subject() and not hashes:
        raise PairmillError("say what goes: --url, --domain, --image, --like or --document.")
    return subject, hashes


def _bytes(file: str) -> bytes:
    """Return a file's bytes."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise PairmillError(f"{file}: {error.strerror or error}. Name a picture's file.") from error


def _like(lake: Lake, subject: Subject, phash: int, args: Namespace) -> Subject:
    """List the pictures that look like the given one, and add them to the subject.

    Raises:
        PairmillError: ``--yes`` does not name their number.
    """
    found = near_hash(lake, phash, NEAR_BITS)
    for sha256, url, bits in found[:SHOWN]:
        print(visible(f"{sha256}  {bits} of 64 bits differ  {url}"))
    if len(found) > SHOWN:
        print(f"and {len(found) - SHOWN:,} more")
    if not args.dry_run and args.yes != len(found):
        raise PairmillError(
            f"{len(found):,} pictures look like {args.like}. Look at them in `pairmill browse`, then say "
            f"--yes {len(found)}."
        )
    return Subject(subject.urls, subject.hosts, (*subject.pictures, *(row[0] for row in found)), subject.documents)


def _counts(taken: Taken) -> str:
    """Put the counts in words."""
    return (
        f"{taken.documents:,} documents, {taken.pictures:,} pictures in {taken.images:,} places, {taken.sentences:,} "
        f"sentences, fused texts of {taken.fused:,} other pictures"
    )


def _told(report: dict[str, Any]) -> Iterator[str]:
    """Say what was done, and what is left to the user."""
    for each in report["versions"]:
        yield f"{each['dataset']}: {each['pairs_removed']:,} pairs taken out, {each['pairs_changed']:,} lost a text"
    for export in report["exports"]:
        yield (f"still holds it: {export['uri']}; delete it, or: pairmill export {export['dataset']} "
               f"--format {export['format']} --to {export['uri']}")  # fmt: skip
    yield from erased(report)
