"""Maintain a lake: merge small files, expire snapshots, trim caches, and retry fetches that failed temporarily.

Each step takes the lease anew, so that a waiting run can start between two steps. No step repeats finished work: after
a kill, or a night on which a run held the lease, the next maintenance continues.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pairmill.catalog.cut.facts import facts_folder
from pairmill.catalog.lake import comments
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.side_folders import reports_folder, trim
from pairmill.catalog.pending import fetches
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.terms.counted import counted
from pairmill.catalog.upkeep.recorded_files import count_files
from pairmill.catalog.upkeep.vacuum import vacuum
from pairmill.catalog.write import lease, runs
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.sweep import checkpoint, sweep
from pairmill.flows.run.settings import Compute
from pairmill.tasks.release.gallery.thumbnails import ThumbnailCache
from pairmill.tasks.upkeep.removal import finish_unfinished

# An address that fails for a passing reason is fetched on this many nights at most.
MOST_TIMES = 4


@dataclass(frozen=True)
class Limits:
    """Limits of maintenance: age of snapshots in days, size of each cache in bytes, longest wait for the lease."""

    days: float = 7.0
    thumbnails: int = 2_000_000_000
    facts: int = 20_000_000_000
    reports: int = 500_000_000
    wait_seconds: float = 60.0


def maintain_steps(lake: Lake, limits: Limits) -> Iterator[str]:
    """Maintain the lake step by step; yield a line of text after each step.

    Raises LeaseHeld if a run writes to the lake, and did not end within ``wait_seconds``; earlier steps are finished.
    Raises LeaseLost if another process took the lease over.
    """
    with lease.writing(lake, uuid.uuid4().hex, "maintain", limits.wait_seconds):
        described = comments.describe(lake)
    if described:  # a lake of an older Pairmill lacked some
        yield f"described tables and columns: {described:,} comments and macros written"
    yield f"retried {counted(_fetch_again(lake), 'addresses')} that failed for a passing reason"
    for step in (_compact, _sweep, _vacuum):
        with lease.writing(lake, uuid.uuid4().hex, "maintain", limits.wait_seconds) as writer:
            yield step(writer, limits)
    yield from finish_unfinished(lake, reports_folder(lake.uri), limits.wait_seconds)
    yield _trim(lake, limits)


def _compact(writer: Writer, limits: Limits) -> str:
    """Write bookkeeping rows to Parquet and merge small files."""
    before = count_files(writer.lake)
    checkpoint(writer)
    return f"merged small files: {before:,} files before, {count_files(writer.lake):,} after"


def _sweep(writer: Writer, limits: Limits) -> str:
    """Expire snapshots and remove files that no snapshot names."""
    expired, removed = sweep(writer, snapshot_seconds=limits.days * 86_400)
    return f"expired {expired:,} snapshots, removed {len(removed):,} files"


def _vacuum(writer: Writer, limits: Limits) -> str:
    """Return the catalog's free pages to the file system."""
    done = vacuum(writer)
    if done.why:
        return f"catalog not rewritten: {done.why}"
    return f"catalog rewritten: {done.before / 1e6:,.1f} MB before, {done.after / 1e6:,.1f} MB after" if done.before \
        else "catalog has few free pages"  # fmt: skip


def _trim(lake: Lake, limits: Limits) -> str:
    """Remove the oldest thumbnails, facts and reports beyond the limits; a later use makes them again."""
    folders: list[tuple[str, Path, str, int]] = [
        ("facts", facts_folder(lake), "*.duckdb", limits.facts),
        ("reports", reports_folder(lake.uri), "*.html", limits.reports),
    ]
    counts = [f"{ThumbnailCache(lake, limits.thumbnails).sweep():,} thumbnails"]
    counts += [f"{trim(folder.glob(pattern), most):,} {name}" for name, folder, pattern, most in folders]
    return f"removed from caches: {', '.join(counts)}"


def _fetch_again(lake: Lake) -> int:
    """Fetch addresses again whose newest attempt failed for a passing reason; return their number."""
    if not fetches.failed_fetches(lake, most_times=MOST_TIMES):
        return 0
    from pairmill.flows.run.run_start import session_on  # torch, 3 s
    from pairmill.tasks.collect.fetch import fetch_again

    recipe = runs.latest_recipe(lake)
    if recipe.fetch is None:
        return 0
    with session_on(lake, (compile_plan(recipe), []), Compute.model_validate({}), "maintain") as session:
        return fetch_again(session, most_times=MOST_TIMES)
