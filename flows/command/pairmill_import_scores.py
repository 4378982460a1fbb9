"""Implement `pairmill import-scores`: take other people's scores of pictures into a lake, for rules to read."""

import json
import uuid
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.lake.without_pandas import work_without_pandas
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.write import lease
from pairmill.catalog.write.import_scores import ImportedScores, import_scores

WAIT_SECONDS = 60.0


def import_file(args: Namespace) -> int:
    """Import a file's scores, and print how many pictures have one and how a rule reads it."""
    work_without_pandas()
    check_is_lake(args.lake)
    purpose = f"import scores {args.name}"
    with create_or_open(args.lake) as lake, lease.writing(lake, uuid.uuid4().hex, purpose, WAIT_SECONDS) as writer:
        done = import_scores(writer, Path(args.file), args.name, args.key, args.column or args.name)
    print(json.dumps(asdict(done)) if args.format == "json" else visible(_text(done, args.key)))
    return 0


def _text(done: ImportedScores, key: str) -> str:
    """Describe an import in lines."""
    pictures = done.scored + done.without
    lines = [f"{done.name}: {done.scored:,} of {pictures:,} pictures have a score, {done.added:,} by this import"]
    if done.unmatched:
        lines.append(f"{done.unmatched:,} of the file's {done.rows:,} rows name no picture of the lake by {key}")
    if done.without:
        lines.append(
            f"{done.without:,} pictures have none: a rule that reads {done.name} drops these, unless it says "
            f"coalesce({done.name}, …)"
        )
    example = "…" if done.median is None else f"{done.median:.4g}"
    lines.append(f"in a recipe: imported: [{done.name}], and a rule such as {done.name} >= {example} (the median)")
    return "\n".join(lines)
