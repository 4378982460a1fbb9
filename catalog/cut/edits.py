"""Apply people's edits of texts, rows of `acts`, to the pairs of a cut.

An edit belongs to a dataset by name and to a column of its pairs. An ``edit`` gives one picture, named by its sha256, a
new text, which stays whatever text a model makes for the picture later. ``replace``, ``regex`` and ``prefix`` are rules
for the texts of all pictures, also for texts that are made later. Edits apply in the order in which they were stored: a
rule also changes new texts that are older than itself. An undone edit has no effect.

Edits come last: rules of the recipe, similarities and the scores of `captions.choose` judge the text as it was made.

Verdicts on pictures are applied too: left out, kept whatever a rule says, tagged. A picture that is left out is dropped
by ``left_out`` once it has passed the rules that apply before texts are generated, so that near copies and others of
its cluster may take its place. A picture that is kept passes all rules that it would fail, but `readable`; it is the
best of its group of near copies, and no cap drops it. It still needs its scores and a sentence, if the recipe demands
one.
"""

from collections.abc import Sequence

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms import text_columns
from pairmill.catalog.write.acts import current_acts, current_verdicts

# A text that a person gave is ok, whatever became of the model's.
_STATUS = {"caption": "caption_status", "syn_text": "synthetic_status"}


def apply_edits(lake: Lake, plan: Plan) -> None:
    """Edit the texts of ``cut_pairs``; create ``cut_edited(image_id, sha256, field, before)`` of the changed ones.

    A hash join for new texts and one pass of SQL for all rules: RE2 takes time linear in the text for any pattern.
    """
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_edited (image_id VARCHAR, sha256 VARCHAR, field VARCHAR, before VARCHAR)"
    )
    read_edits(lake, plan.recipe.name)
    edited, fields = with_edits(
        lake, "cut_made", text_columns.of_every_kind(text_columns.count(plan.recipe.association.top_k))
    )
    if not fields:
        return
    lake.execute("DROP TABLE IF EXISTS cut_made; ALTER TABLE temp.cut_pairs RENAME TO cut_made")
    lake.execute(f"CREATE TEMP TABLE cut_pairs AS {edited}")
    for field in fields:
        lake.execute(
            f"INSERT INTO cut_edited SELECT m.image_id, m.sha256, '{field}', m.{field} FROM cut_made m "
            f"JOIN cut_pairs p ON p.image_id = m.image_id WHERE p.{field} IS DISTINCT FROM m.{field}"
        )
    lake.execute("DROP TABLE temp.cut_made")


def read_edits(lake: Lake, dataset: str, beside: str = "") -> None:
    """Create the table ``edits_read`` of the dataset's edits that are not undone; ``beside`` is SQL of further ones."""
    more = f" UNION ALL BY NAME {beside}" if beside else ""
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE edits_read AS SELECT * FROM ({current_acts(dataset)}) WHERE field <> ''{more}"
    )


def with_edits(lake: Lake, pairs: str, fields: Sequence[str]) -> tuple[str, list[str]]:
    """Return SQL of ``pairs`` with the edits of ``edits_read``, and the names of the ``fields`` that have edits.

    ``pairs`` is a table or a query in parentheses, with the columns of a version's pairs; the SQL has the same columns.
    """
    rules = lake.query(
        'SELECT field, act, pattern, value, "commit" FROM temp.edits_read WHERE sha256 IS NULL ORDER BY "commit"'
    )
    given = {field for (field,) in lake.query("SELECT DISTINCT field FROM temp.edits_read WHERE sha256 IS NOT NULL")}
    own = [field for field in fields if field in given]
    touched = [field for field in fields if field in given or any(rule[0] == field for rule in rules)]
    joins = "".join(
        f' LEFT JOIN (SELECT sha256, arg_max(value, "commit") AS value, max("commit") AS since FROM temp.edits_read '
        f"WHERE field = '{field}' AND sha256 IS NOT NULL GROUP BY sha256) of_{field} ON of_{field}.sha256 = p.sha256"
        for field in own
    )
    texts = [f"coalesce(of_{field}.value, p.{field}) AS {field}" for field in own]
    since = "".join(f", of_{field}.since AS since_{field}" for field in own)
    sql = f"SELECT p.*{_replace(texts)}{since} FROM {pairs} p{joins}"
    for field, act, pattern, value, commit in rules:
        if field in touched:
            text = changed_text(act, pattern, value, field)
            text = (
                f"CASE WHEN coalesce(since_{field}, 0) < {commit} THEN {text} ELSE {field} END"
                if field in own
                else text
            )
            sql = f"SELECT *{_replace([f'{text} AS {field}'])} FROM ({sql})"
    final = [f"nullif({field}, '') AS {field}" for field in touched]
    final += [
        f"if(since_{field} IS NOT NULL AND {field} <> '', 'ok', {_STATUS[field]}) AS {_STATUS[field]}"
        for field in own
        if field in _STATUS
    ]
    beside = ", ".join(f"since_{field}" for field in own)
    return f"SELECT *{f' EXCLUDE ({beside})' if beside else ''}{_replace(final)} FROM ({sql})", touched


def _replace(columns: Sequence[str]) -> str:
    """Return the REPLACE clause of these columns; '' for none."""
    return f" REPLACE ({', '.join(columns)})" if columns else ""


def changed_text(act: str, pattern: str, value: str, text: str) -> str:
    """Return SQL for what a rule makes of ``text``, an SQL expression. NULL and an empty text become NULL."""
    text = f"nullif({text}, '')"
    if act == "prefix":
        return f"({quoted(value)} || {text})"
    if act == "replace":
        return f"replace({text}, {quoted(pattern)}, {quoted(value)})"
    return f"regexp_replace({text}, {quoted(pattern)}, {quoted(value)}, 'g')"


LEFT_OUT = "left_out"
KEPT = "temp.acts_kept"  # the pictures (sha256) that a plan spares


def with_kept(lake: Lake, plan: Plan) -> Plan:
    """Return the plan whose rules spare the pictures that people keep in its dataset; create ``acts_kept(sha256)``.

    Called once, at a run's start: a picture that is kept later lacks the scores of the steps before.
    """
    kept = f"SELECT sha256 FROM ({current_verdicts(plan.recipe.name)}) WHERE act = 'keep'"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE acts_kept AS {kept}")
    any_kept = lake.query(f"SELECT 1 FROM {KEPT} LIMIT 1")
    return plan.sparing(f"sha256 IN (SELECT sha256 FROM {KEPT})" if any_kept else "")


def read_left_out(lake: Lake, dataset: str) -> None:
    """Create the table ``acts_left_out(sha256)`` of the pictures that people leave out of a dataset."""
    verdicts = current_verdicts(dataset)
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE acts_left_out AS SELECT sha256 FROM ({verdicts}) WHERE act = 'leave_out'"
    )


def apply_tags(lake: Lake, dataset: str) -> None:
    """Add people's tags to those of ``cut_pairs``, in the order in which they were given, and take others away."""
    given = f"FROM ({current_acts(dataset)}) WHERE act IN ('tag', 'untag')"
    if not lake.query(f"SELECT 1 {given} LIMIT 1"):
        return
    newest = f'SELECT sha256, value AS word, arg_max(act, "commit") AS act, max("commit") AS since {given} GROUP BY ALL'
    words = "list(word ORDER BY since, word) FILTER (act = '{}')"
    by_picture = (
        f"SELECT sha256, coalesce({words.format('tag')}, []) AS added, "
        f"coalesce({words.format('untag')}, []) AS gone FROM ({newest}) GROUP BY sha256"
    )
    tags = "coalesce(tags, [])"
    stay = f"list_filter({tags}, lambda t: NOT list_contains(gone, t))"
    new = f"list_filter(added, lambda t: NOT list_contains({tags}, t))"
    lake.execute(
        "ALTER TABLE temp.cut_pairs RENAME TO cut_untagged; CREATE TEMP TABLE cut_pairs AS SELECT p.* REPLACE "
        f"(if(added IS NULL, tags, list_concat({stay}, {new})) AS tags) FROM cut_untagged p "
        f"LEFT JOIN ({by_picture}) USING (sha256); DROP TABLE temp.cut_untagged"
    )
