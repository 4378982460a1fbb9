"""Prepare what people decide about pictures of a dataset for the queue of acts; list acts, undo them.

Acts are edits of texts, and verdicts on pictures: ``leave_out``, ``keep``, ``tag`` and ``untag`` with a word. Rows of
table `acts` are append-only: an undo is a row too, so that an older version is explained by the acts up to its commit.
"""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import duckdb

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import is_fit, quoted
from pairmill.catalog.terms.error import BadQuery, Damaged, PairmillError
from pairmill.catalog.write.act_queue import WAITING, put, waiting_rows

Answer = TypeVar("Answer")
LONGEST = 100_000  # characters of a text; a pattern has 4,000 at most
_SHOWN = 150  # characters of a text in a message
MOST_RULES = 100  # of one dataset; each is one more pass over the texts
VERDICTS = ("leave_out", "keep", "tag", "untag")
# What a row of a user's file may name a picture by -> SQL of (key, sha256) of the lake.
KEYS = {
    "sha256": "SELECT sha256 AS key, sha256 FROM image_content",
    "image_id": "SELECT image_id AS key, sha256 FROM images",
    "url": "SELECT DISTINCT url AS key, sha256 FROM images WHERE url IS NOT NULL",
}
_READERS = {
    ".parquet": "read_parquet({})",
    ".csv": "read_csv({}, all_varchar = true, header = true, strict_mode = true, allow_quoted_nulls = false)",
    ".jsonl": "read_json({}, format = 'newline_delimited')",
}


@dataclass(frozen=True)
class Act:
    """One act: ``pictures`` is its number of pictures, 0 for a rule for all; see table `acts`.

    The ``commit`` of an act that waits in the queue is WAITING or more.
    """

    act_id: str
    act: str
    field: str | None
    pattern: str | None
    value: str | None
    pictures: int
    who: str
    at: datetime
    commit: int
    is_undone: bool

    @property
    def is_waiting(self) -> bool:
        """Whether no holder of the lease has stored the act yet."""
        return self.commit >= WAITING

    def __str__(self) -> str:
        value = f"'{(self.value or '')[:_SHOWN]}'"
        if self.act in VERDICTS:
            what = self.act.replace("_", " ") + (f" {value}" if self.value else "")
            return f"{what}: {self.pictures:,} picture{'' if self.pictures == 1 else 's'}"
        if self.act == "edit":
            return f"{self.field}: {self.pictures:,} new text{'s, one of them' if self.pictures > 1 else ''} {value}"
        what = f"{self.act} '{(self.pattern or '')[:_SHOWN]}' by" if self.pattern else self.act
        return f"{self.field}: {what} {value}"


def current_acts(dataset: str, upto: int | None = None, rows: str = "acts") -> str:
    """Return SQL of the acts on a dataset that are not undone, up to commit ``upto`` (None: all)."""
    until = "" if upto is None else f' AND "commit" <= {upto}'
    return f"""SELECT * FROM {rows} WHERE dataset = {quoted(dataset)} AND act <> 'undo'{until} AND act_id NOT IN
        (SELECT act_id FROM {rows} WHERE act = 'undo'{until})"""


def current_verdicts(dataset: str, rows: str = "acts") -> str:
    """Return SQL for (sha256, word, act): the newest verdict on each picture, and on each of its words a person's tag.

    ``word`` is NULL for 'leave_out' and 'keep', of which the newer counts.
    """
    return f"""SELECT sha256, value AS word, arg_max(act, "commit") AS act FROM ({current_acts(dataset, rows=rows)})
        WHERE act IN {VERDICTS} GROUP BY ALL"""


def with_waiting(lake: Lake, ask: Callable[[str], Answer]) -> Answer:
    """Call ``ask`` with SQL for all acts, stored and waiting ones, and return its result.

    Asks again, at most five times, if the holder of the lease stores a waiting act meanwhile.
    """
    for _ in range(5):
        if not (waiting := waiting_rows(lake)):
            break
        with suppress(duckdb.Error, PairmillError):  # a queued file was taken meanwhile
            return ask(f"(SELECT * FROM acts UNION ALL BY NAME {waiting})")
    return ask("acts")


def acts_of(lake: Lake, dataset: str, upto: int | None = None) -> list[Act]:
    """Return the acts on a dataset, oldest first, undone and waiting ones too; ``upto``: stored up to this commit."""
    if upto is not None:
        return _acts_in(lake, "acts", dataset, upto)
    return with_waiting(lake, lambda rows: _acts_in(lake, rows, dataset, 2**63 - 1))


def _acts_in(lake: Lake, rows: str, dataset: str, upto: int) -> list[Act]:
    undone = f"act_id IN (SELECT act_id FROM {rows} WHERE act = 'undo' AND \"commit\" <= {upto})"
    sql = f"""SELECT act_id, any_value(act), any_value(field), any_value(pattern), min(value), count(sha256),
        any_value(who), any_value("at"), min("commit"), {undone} FROM {rows} WHERE dataset = ? AND act <> 'undo'
        AND "commit" <= ? GROUP BY act_id ORDER BY min("commit")"""
    found = lake.query(sql, (dataset, upto))
    return [Act(*row) for row in found]


def prepare_verdicts(lake: Lake, dataset: str, act: str, word: str, fates: Mapping[str, str]) -> tuple[int, int]:
    """Create ``new_acts``, a row a picture, and ``edit_before``, their fates; return how many, and how many are kept.

    ``fates``: sha256 -> 'kept' or a rule's name. Pictures that have this verdict already are left out. ``word`` is the
    tag, '' for other acts. Raises PairmillError for a word that is not fit.
    """
    if act in ("tag", "untag"):
        _check_text(word, 100)
        if not word.strip() or word != word.strip():
            raise PairmillError("a tag is a word or a few; it neither is empty nor begins or ends with a space.")
    pairs = "SELECT unnest(?::VARCHAR[]) AS sha256, unnest(?::VARCHAR[]) AS before"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE edit_before AS {pairs}", (list(fates), list(fates.values())))
    value = quoted(word) if word else "NULL::VARCHAR"
    has = f"SELECT sha256 FROM ({current_verdicts(dataset)}) WHERE act = '{act}' AND word IS NOT DISTINCT FROM {value}"
    row = f"'{act}' AS act, NULL::VARCHAR AS field, NULL::VARCHAR AS pattern, {value} AS value"
    _prepare(lake, f"SELECT sha256, {row} FROM temp.edit_before ANTI JOIN ({has}) USING (sha256)")
    counts = "count(*), count(*) FILTER (before = 'kept')"
    return lake.query(f"SELECT {counts} FROM temp.new_acts JOIN temp.edit_before USING (sha256)")[0]


def prepare_rule(lake: Lake, dataset: str, act: str, field: str, pattern: str | None, value: str) -> None:
    """Create the table ``new_acts`` of one rule for all pictures. Raise PairmillError if it is not valid."""
    for text, most in ((pattern, 4_000), (value, LONGEST)):
        _check_text(text or "", most)
    if not (value if act == "prefix" else pattern):
        raise PairmillError("an empty text stands everywhere; say what is to be replaced, or put before each text.")
    if act == "regex":
        _check_regex(lake, pattern or "", value)
    rules = [each for each in acts_of(lake, dataset) if not each.is_undone and each.act != "edit"]
    if len(rules) >= MOST_RULES:
        raise PairmillError(
            f"'{dataset}' has {len(rules)} rules for texts; undo some: pairmill edit {dataset} --undo ID"
        )
    _prepare(lake, f"SELECT NULL::VARCHAR AS sha256, {_row(act, field, pattern, quoted(value))}")


def prepare_text(lake: Lake, field: str, sha256s: Sequence[str], text: str) -> None:
    """Create the table ``new_acts`` of a new text for these pictures. Raise PairmillError for an unfit text."""
    _check_text(text, LONGEST)
    keys = f"(SELECT unnest([{', '.join(map(quoted, sha256s))}]) AS sha256)"
    _prepare(lake, f"SELECT sha256, {_row('edit', field, None, quoted(text))} FROM {keys}")


def prepare_table(lake: Lake, field: str, file: Path) -> None:
    """Create the table ``new_acts`` of a file's new texts, one a picture.

    The file has a column ``sha256``, ``image_id`` or ``url``, and a column named as ``field``, or ``text``. Raises
    PairmillError if the file cannot be read or lacks a column, if a key names no picture of the lake, or has two texts.
    """
    key, column = _read(lake, file, (field, "text"))
    _check_known(lake, file, key)
    matched = f"SELECT sha256, value FROM temp.edit_rows JOIN ({KEYS[key]}) USING (key)"
    twice = lake.query(f"""SELECT sha256, min(value), max(value) FROM ({matched}) GROUP BY sha256
        HAVING min(value) <> max(value) LIMIT 1""")
    if twice:
        sha256, one, other = twice[0]
        raise PairmillError(
            f"'{file}': the picture {sha256} has two texts in column '{column}', '{one[:40]}' and '{other[:40]}'; keep "
            "one row a picture. Nothing was stored."
        )
    long = lake.query(f"SELECT min(key) FROM temp.edit_rows WHERE length(value) > {LONGEST} OR contains(value, chr(0))")
    if long[0][0]:
        raise PairmillError(
            f"'{file}': the text of {long[0][0][:80]} has more than {LONGEST:,} characters, or a NUL; shorten it."
        )
    _prepare(lake, f"SELECT DISTINCT sha256, {_row('edit', field, None, 'value')} FROM ({matched})")
    lake.execute("DROP TABLE temp.edit_rows")


def pictures_in(lake: Lake, file: Path) -> list[str]:
    """Return the distinct sha256s of the pictures that a file names by ``sha256``, ``image_id`` or ``url``.

    Raises PairmillError as `prepare_table`.
    """
    key, _ = _read(lake, file, ())
    _check_known(lake, file, key)
    found = lake.query(f"SELECT DISTINCT sha256 FROM temp.edit_rows JOIN ({KEYS[key]}) USING (key) ORDER BY ALL")
    lake.execute("DROP TABLE temp.edit_rows")
    return [sha256 for (sha256,) in found]


def _check_known(lake: Lake, file: Path, key: str) -> None:
    """Raise PairmillError if a row of ``edit_rows`` names no picture of the lake."""
    others = f"temp.edit_rows ANTI JOIN ({KEYS[key]}) USING (key)"
    unknown, example = lake.query(f"SELECT count(*), coalesce(min(key), '') FROM {others}")[0]
    if unknown:
        raise PairmillError(
            f"'{file}': {unknown:,} rows name no picture of the lake by {key}, one of them '{example[:80]}'; leave "
            "these rows out. Nothing was stored."
        )


def enqueue(lake: Lake, dataset: str, who: str) -> str:
    """Queue the rows of ``new_acts``, each with its ``before`` of the table ``edit_before``; return the act's id."""
    act_id = uuid.uuid4().hex
    put(
        lake,
        f"SELECT {quoted(act_id)} AS act_id, {quoted(dataset)} AS dataset, n.*, b.before, {quoted(who)} AS who, "
        'now() AS "at" FROM temp.new_acts n LEFT JOIN temp.edit_before b USING (sha256)',
    )
    return act_id


def find_act(lake: Lake, dataset: str, act_id: str) -> Act:
    """Return the act whose id begins with ``act_id``; for '', the newest act that is not undone.

    Raises PairmillError if there is no such act, several begin so, or it is undone already.
    """
    known = acts_of(lake, dataset)
    found = [each for each in known if each.act_id.startswith(act_id) and (act_id or not each.is_undone)]
    remedy = f"`pairmill edit {dataset}` lists the edits."
    if not found:
        raise PairmillError(f"'{dataset}' has no edit{f' {act_id[:40]!r}' if act_id else ' to undo'}; {remedy}")
    if act_id and len(found) > 1:
        raise PairmillError(f"{len(found)} edits of '{dataset}' begin with {act_id!r}; {remedy}")
    if found[-1].is_undone:
        raise PairmillError(f"the edit {found[-1].act_id[:8]} of '{dataset}' is undone already; {remedy}")
    return found[-1]


def enqueue_undo(lake: Lake, dataset: str, act_id: str, who: str) -> None:
    """Queue the undo of an act, by its whole id."""
    absent = ", ".join(f"NULL::VARCHAR AS {name}" for name in ("sha256", "field", "pattern", "value", "before"))
    put(lake, f"SELECT {quoted(act_id)} AS act_id, 'undo' AS act, {quoted(dataset)} AS dataset, {absent}, "
        f'{quoted(who)} AS who, now() AS "at"')  # fmt: skip


def _row(act: str, field: str, pattern: str | None, value: str) -> str:
    """Return SQL of an act's columns; ``value`` is SQL."""
    what = "NULL::VARCHAR" if pattern is None else quoted(pattern)
    return f"'{act}' AS act, '{field}' AS field, {what} AS pattern, {value} AS value"


def _prepare(lake: Lake, rows: str) -> None:
    """Create the table ``new_acts(sha256, act, field, pattern, value)``."""
    lake.execute(f"CREATE OR REPLACE TEMP TABLE new_acts AS {rows}")


def _check_text(text: str, most: int) -> None:
    """Raise PairmillError for a text that is too long, or holds a NUL or a lone surrogate."""
    if len(text) > most or not is_fit(text):
        raise PairmillError(f"the text '{text[:40]}…' has more than {most:,} characters, or is no UTF-8; shorten it.")


def _check_regex(lake: Lake, pattern: str, replacement: str) -> None:
    """Raise PairmillError unless RE2 compiles the pattern, and has the replacement's groups: it would ignore these."""
    try:
        lake.query(f"SELECT regexp_matches('', {quoted(pattern)})")
    except (duckdb.Error, PairmillError) as error:
        why = str(error).splitlines()[0].partition("Invalid Input Error: ")[2] or str(error).splitlines()[0]
        raise PairmillError(
            f"--regex '{pattern[:80]}': {why}. The syntax is RE2's: https://github.com/google/re2/wiki/Syntax"
        ) from error
    for escape in re.findall(r"\\(.?)", replacement, re.DOTALL):
        if escape != "\\" and not (escape.isascii() and escape.isdigit() and _has_groups(lake, pattern, int(escape))):
            raise PairmillError(
                f"the replacement '{replacement[:80]}' has '\\{escape}', and the expression no such group; \\1 to \\9 "
                "are its groups in parentheses, \\0 is all of it, \\\\ is a backslash."
            )


def _has_groups(lake: Lake, pattern: str, n: int) -> bool:
    """Return whether the pattern has at least ``n`` groups: DuckDB refuses more names than groups."""
    names = ", ".join(f"'g{number}'" for number in range(n))
    try:
        return not n or bool(lake.query(f"SELECT regexp_extract('', {quoted(pattern)}, [{names}])"))
    except (duckdb.Error, PairmillError):
        return False


def _read(lake: Lake, file: Path, texts: Sequence[str]) -> tuple[str, str]:
    """Create the table ``edit_rows(key, value)`` of a file; return the names of its columns of keys and of texts.

    The column of texts is the first of ``texts`` that the file has; without ``texts`` none is read. Rows without a text
    are left out; an empty text removes the pair's.
    """
    if (reader := _READERS.get(file.suffix.lower())) is None or not file.is_file():
        of = "new texts" if texts else "pictures"
        raise PairmillError(f"'{file}' is no file of {of}; name a .parquet, .csv or .jsonl file.")
    table = reader.format(quoted(str(file)))
    try:
        names = [name for name, *_ in lake.query(f"DESCRIBE SELECT * FROM {table}")]
        key = next((name for name in KEYS if name in names), "")
        column = next((name for name in texts or (key,) if name in names), "")
        if not (key and column):
            more = f", and {' or '.join(map(repr, texts))}" if texts else ""
            raise PairmillError(
                f"'{file}' has the columns {', '.join(names)[:200]}; it needs one of {', '.join(KEYS)}{more}."
            )
        name = 'lower(left(CAST("sha256" AS VARCHAR), 32))' if key == "sha256" else f'CAST("{key}" AS VARCHAR)'
        lake.execute(f"""CREATE OR REPLACE TEMP TABLE edit_rows AS SELECT {name} AS key,
            CAST("{column}" AS VARCHAR) AS value FROM {table} WHERE "{column}" IS NOT NULL""")
    except (duckdb.Error, BadQuery, Damaged) as error:
        raise unreadable(file, error) from error
    return key, column


def unreadable(file: Path, error: Exception) -> PairmillError:
    """Return the error for a user's file that DuckDB cannot read; it names the file, which DuckDB's own may not."""
    why = str(error.__cause__ or error).splitlines()[0][:200]
    return PairmillError(f"'{file}' cannot be read, write it anew: {why}")
