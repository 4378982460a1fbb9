"""Why is an item where it is? What an id, an address or a text stands for, and what is known of it.

Every query is bound to one key, so an answer costs a few scans of id columns, whatever the lake's size (2 s at 10M
images). What is told is plain: dictionaries of names and values, with no digest where a word says it.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from catalog.datasets import Dataset
from catalog.lake import Lake
from catalog.plan import Check, Plan, ScoreColumns
from catalog.report import plan_of

Facts = dict[str, Any]
MOST = 20  # of each kind of thing that is listed


@dataclass(frozen=True)
class Named:
    """What an item may stand for: image ids, contents of sentences, documents, and its rows of quarantine."""

    images: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    documents: list[Facts] = field(default_factory=list)
    quarantine: list[Facts] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.images or self.sentences or self.documents or self.quarantine)


@dataclass(frozen=True)
class Seen:
    """Through whose eyes: a dataset's plan, commit and scorers by name; of the newest rows when there is none."""

    dataset: Dataset | None = None
    plan: Plan | None = None
    scorers: dict[str, str] = field(default_factory=dict)

    @property
    def upto(self) -> int:
        return self.dataset.commit if self.dataset else 2**62


def seen_by(lake: Lake, dataset: Dataset | None) -> Seen:
    if dataset is None:
        return Seen()
    used = "SELECT unnest(scorers) FROM datasets WHERE name = ? AND version = ?"
    sql = f"SELECT name, digest FROM scorers WHERE digest IN ({used})"
    return Seen(dataset, plan_of(lake, dataset), dict(lake.query(sql, (dataset.name, dataset.version))))


def named(lake: Lake, item: str, content: str) -> Named:
    """Find ``item``: any id, a sha256 of 32 or 64 digits, the address of a picture or page (or how it ends), a
    sentence's text. ``content`` is the id of the item read as a sentence."""
    key = item[:32] if re.fullmatch(r"[0-9a-f]{64}", item) else item
    found = _named(lake, key, content, "{} = ?", key)
    if not found and "/" not in item.strip("/") and len(item) < 300:
        found = _named(lake, key, content, "ends_with({}, '/' || ?)", item)
    return found


def _named(lake: Lake, key: str, content: str, address: str, value: str) -> Named:
    images = f"SELECT image_id FROM images WHERE image_id = ? OR sha256 = ? OR {address.format('url')} ORDER BY ALL"
    sentences = (
        "SELECT DISTINCT content FROM sentences WHERE sentence_id = ? OR content = ? OR content = ? ORDER BY ALL"
    )
    documents = f"SELECT * EXCLUDE (shard) FROM documents WHERE document_id = ? OR {address.format('uri')} ORDER BY uri"
    return Named(
        [row[0] for row in lake.query(images, (key, key, value))],
        [row[0] for row in lake.query(sentences, (key, key, content))],
        facts(lake, documents, (key, value)),
        quarantine(lake, f"item = ? OR payload_ref = ? OR {address.format('item')}", (key, key, value)),
    )


def quarantine(lake: Lake, where: str, values: tuple) -> list[Facts]:
    columns = "item, source, stage, reason, detail, run_id"
    sql = f"SELECT DISTINCT {columns} FROM quarantine WHERE {where} ORDER BY ALL LIMIT {MOST}"
    return facts(lake, sql, values)


def facts(lake: Lake, sql: str, values: tuple = ()) -> list[Facts]:
    return lake.table(sql, values).to_pylist()


def scores(lake: Lake, seen: Seen, tables: tuple[ScoreColumns, ...], key: str, value: str) -> Facts:
    """Values by column: of each score table the row by the dataset's scorer; the newest where no dataset is asked."""
    found: Facts = {}
    for table in tables[1:]:
        columns = ", ".join(f"{source} AS {name}" for name, source in table.source.items())
        digest = seen.plan.scorer(table.table) if seen.plan else ""
        where = f"{key} = ? AND commit <= ? AND (scorer = ? OR ?)"
        sql = f"SELECT {columns} FROM {table.table} WHERE {where} ORDER BY commit DESC LIMIT 1"
        for row in facts(lake, sql, (value, seen.upto, digest, seen.plan is None)):
            found |= row
    return found


def judged(lake: Lake, checks: tuple[Check, ...], tables: tuple[ScoreColumns, ...], values: Facts) -> list[Facts]:
    """Each rule with the values that it reads; ``kept`` is None where a score is missing: it fell before."""
    types = {name: kind for table in tables for name, kind in table.columns.items()}
    told = []
    for check in checks:
        read = {column: values.get(column) for column in check.columns}
        row = ", ".join(f'CAST(? AS {types[column]}) AS "{column}"' for column in read) or "1"
        kept = lake.query(f"SELECT ({check.keep}) FROM (SELECT {row})", tuple(read.values()))[0][0]
        missing = any(column not in values for column in read)
        told.append({"rule": check.name, "keep": check.keep, "values": read, "kept": None if missing else bool(kept)})
    return told
