"""Apply people's verdicts on pictures, rows of `acts`, to a cut: left out, kept whatever a rule says, tagged.

A picture that is left out is dropped by ``left_out`` once it has passed the rules that apply before texts are
generated, so that near copies and others of its cluster may take its place. A picture that is kept passes all rules
that it would fail, but `readable`; it is the best of its group of near copies, and no cap drops it. It still needs its
scores and a sentence, if the recipe demands one.
"""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.write.acts import current_acts, current_verdicts

LEFT_OUT = "left_out"
KEPT = "temp.acts_kept"  # the pictures (sha256) that a plan spares


def with_kept(lake: Lake, plan: Plan) -> Plan:
    """Return the plan whose rules spare the pictures that people keep in its dataset; the same without such pictures.

    Creates the table ``acts_kept(sha256)``. A run calls this once, at its start, because a picture that is kept later
    lacks the scores of the steps before.
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
