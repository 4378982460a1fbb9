"""Judge pictures by the rules on generated texts, as far as these are known."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending import generated
from pairmill.catalog.recipe.plan import Plan


def judge(lake: Lake, plan: Plan) -> None:
    """Make ``cut_late(n, state, value)`` of the pictures of ``cut_survivors(n)`` that have generated texts.

    ``state`` is '' or the rule that drops a picture; NULL, or no row, says that this is unknown.
    """
    columns = "n UINTEGER, state VARCHAR, value VARCHAR"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_late ({columns})")
    begun = generated.with_first_text(plan)
    if not begun:
        lake.execute("INSERT INTO cut_late SELECT n, '', '' FROM cut_survivors")
        return
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_begun AS SELECT s.n FROM cut_survivors s "
        f"JOIN facts.images f ON f.rowid = s.n SEMI JOIN {begun} b ON b.sha256 = f.sha256"
    )
    among = (
        "(SELECT b.n, f.*, coalesce(t.text, '') AS sentence FROM cut_begun b JOIN facts.images f ON f.rowid = b.n "
        f"LEFT JOIN ({sentences(plan, 'cut_begun')}) t ON t.n = b.n)"
    )
    lake.execute(f"INSERT INTO cut_late BY NAME {generated.states(plan, among)}")
    lake.execute("DROP TABLE cut_begun")


def sentences(plan: Plan, among: str) -> str:
    """SQL of (n, text) of the best passing candidate of each picture of ``among(n)``, which is what is fused; of none
    where nothing is: all texts of a lake are read for it."""
    if not plan.recipe.fuse:
        return "SELECT CAST(NULL AS UINTEGER) AS n, '' AS text WHERE false"
    return (
        f"SELECT b.n, c.text FROM cut_best b SEMI JOIN {among} a ON a.n = b.n JOIN facts.contents k ON k.rowid = b.s "
        "JOIN sentence_content c ON facts.key_of(c.content) = k.key"
    )
