"""Apply the rules on generated texts to the images whose texts exist."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending import generated
from pairmill.catalog.recipe.plan import Plan


def judge(lake: Lake, plan: Plan) -> None:
    """Create ``cut_late(n, state, value)`` for the images of ``cut_survivors(n)`` that have generated texts.

    ``state`` is '' for a passing image, or the rule that drops it. NULL, or no row, means unknown. The table is empty
    for a recipe that generates no text.
    """
    columns = "n UINTEGER, state VARCHAR, value VARCHAR"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_late ({columns})")
    begun = generated.with_first_text(plan)
    if not begun:
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
    """Return SQL for (n, text): the best passing candidate, if any, of each image of ``among(n)``, which fusion uses.

    Empty if the recipe does not fuse, because the query reads all texts of a lake.
    """
    if not plan.recipe.fuse:
        return "SELECT CAST(NULL AS UINTEGER) AS n, '' AS text WHERE false"
    return (
        f"SELECT b.n, c.text FROM cut_survivors b SEMI JOIN {among} a ON a.n = b.n "
        "JOIN facts.contents k ON k.rowid = b.best "
        "JOIN sentence_content c ON facts.key_of(c.content) = k.key"
    )
