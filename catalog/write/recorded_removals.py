"""Record removals in table ``takedowns``, and find removals whose bytes are not erased yet."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pairmill.catalog.lake.lake import Lake


def record_removal(lake: Lake, takedown_id: str, commit: int, report: dict[str, Any]) -> None:
    """Insert a removal into ``takedowns`` within its transaction; its bytes are not erased yet.

    ``report["erased"]["why"]`` says why not.
    """
    text = json.dumps(report, sort_keys=True)
    lake.execute("INSERT INTO takedowns VALUES (?, ?, ?, ?, now())", (takedown_id, report["reason"], text, commit))


def record_report(lake: Lake, takedown_id: str, report: dict[str, Any]) -> None:
    """Update the report of a removal. The removal is complete unless ``report["erased"]["why"]`` names a hindrance."""
    text = json.dumps(report, sort_keys=True)
    lake.retrying(lambda: lake.execute("UPDATE takedowns SET report = ? WHERE takedown_id = ?", (text, takedown_id)))


def unfinished_removals(lake: Lake) -> dict[str, dict[str, Any]]:
    """Return takedown id -> report so far of the removals that were killed or hindered before all bytes were erased."""
    hindered = "coalesce(json_extract_string(nullif(report, ''), '$.erased.why'), 'no report') <> ''"
    found = lake.query(f"SELECT takedown_id, report FROM takedowns WHERE {hindered}")
    return {takedown_id: json.loads(report or "{}") for takedown_id, report in found}


def unfinished_notice(lake: Lake) -> str:
    """Return a line for users that names the command to finish unfinished removals; '' if there are none."""
    if not (n := len(unfinished_removals(lake))):
        return ""
    are = "1 removal is" if n == 1 else f"{n:,} removals are"
    return (
        f"{are} unfinished: what was deleted is still in the lake's files. `pairmill maintain --lake {lake.uri}` "
        "erases it."
    )


def last_removal(lake: Lake) -> int:
    """Return the commit number of the newest removal, 0 without one. Older copies may hold removed rows."""
    return lake.query('SELECT coalesce(max("commit"), 0) FROM takedowns')[0][0]


@dataclass(frozen=True)
class Removed:
    """The newest removal of a named item: time in UTC, reason, and id; id '' for a ban without a removal."""

    name: str
    at: datetime
    reason: str
    takedown_id: str


def removed_before(lake: Lake, names: Sequence[str]) -> list[Removed]:
    """Return the newest removal or ban of each of ``names``; names that were never removed are left out.

    A name is an id, an address, a host, or an item as a user gave it to `takedown`.
    """
    asked = "from_json(coalesce(json_extract(nullif(report, ''), '$.asked.items'), '[]'), '[\"VARCHAR\"]')"
    sql = f"""WITH names AS (SELECT DISTINCT unnest(?::VARCHAR[]) AS name), found AS (
        SELECT name, b."at", b.reason, coalesce(takedown_id, '') AS takedown_id FROM names
        JOIN bans b ON sha256 = name LEFT JOIN takedowns t ON t."at" = b."at"
        UNION ALL SELECT name, "at", reason, takedown_id FROM names JOIN taken_bans ON value = name
        JOIN takedowns USING (takedown_id)
        UNION ALL SELECT name, "at", reason, takedown_id FROM names JOIN takedowns ON list_contains({asked}, name))
        SELECT DISTINCT ON (name) * FROM found ORDER BY name, "at" DESC"""
    found = lake.query(sql, (list(names),))
    return [Removed(*row) for row in found]


def recorded_report(lake: Lake, takedown_id: str) -> dict[str, Any]:
    """Return the report of a removal, {} if it has none."""
    found = lake.query("SELECT report FROM takedowns WHERE takedown_id = ?", (takedown_id,))
    return json.loads(found[0][0] or "{}") if found else {}


def removed_at(lake: Lake, name: str, value: str) -> list[datetime]:
    """Return [time] of the newest removal whose report has ``value`` at the JSON path ``name``; [] if there is none."""
    where = "json_extract_string(nullif(report, ''), ?) = ?"
    return [at for (at,) in lake.query(f'SELECT max("at") FROM takedowns WHERE {where}', (f"$.{name}", value)) if at]
