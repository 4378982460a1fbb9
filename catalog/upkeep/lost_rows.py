"""Describe damage to a lake, and say for each table what redoes its lost rows, and at what cost."""

from dataclasses import dataclass
from typing import Literal

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.declared import declared

# 'gone': the file is missing. 'damaged': other bytes than were written, or not readable. 'doubled': rows that count
# twice. 'counts': fewer or more rows than `partitions` records. 'source': the lake refers to bytes that are gone.
# 'unfinished': a removal that was killed or hindered.
Trouble = Literal["gone", "damaged", "doubled", "counts", "source", "unfinished"]
# 'source': read the pages again. 'run': the next run finds the rows pending. 'whole': as 'run', for all rows of the
# scorer and of those made from it. 'home': computed from the images or sentences. 'copy': only a copy has them.
Redone = Literal["source", "run", "whole", "home", "copy"]

# The most damages of one kind that a check lists.
MOST = 100_000
OF_A_PAGE = ("documents", "images", "sentences", "payloads", "links")
OF_ALL_ROWS = ("centroids", "clusters", "vector_index", "match_candidates", "duplicate_edges", "image_groups",
               "sentence_edges", "sentence_groups", "word_counts", "word_probabilities", "noun_counts",
               "tag_words")  # fmt: skip
HOMES = {"image_content": ("images", "sha256"), "sentence_content": ("sentences", "content")}
_HOW: dict[str, str] = {
    "source": "--repair reads those pages again",
    "run": "the next run does them again",
    "whole": "the next run does all rows of their scorer again",
    "home": "--repair computes them from the rows that are there",
    "copy": "nothing here can make them again: put the file back from a copy of the lake",
}


@dataclass(frozen=True)
class Damage:
    """One damage to a lake.

    ``rows`` is how many rows it concerns, ``ids`` DuckLake's numbers of the data files that a repair removes from the
    catalog, ``shard`` and ``scorer`` the group of rows if the damage is not of a file.
    """

    trouble: Trouble
    table: str
    detail: str
    rows: int
    path: str = ""
    ids: tuple[int, ...] = ()
    shard: str | None = None
    scorer: str | None = None

    @property
    def is_repairable(self) -> bool:
        """Whether rows are superfluous, or the lost ones can be made again."""
        return self.trouble in ("doubled", "unfinished") or (
            self.trouble != "source" and redone_by(self.table) != "copy"
        )


def redone_by(table: str) -> Redone:
    """Return what makes lost rows of a table again."""
    if table in OF_A_PAGE:
        return "source"
    if table in OF_ALL_ROWS:
        return "whole"
    if table in HOMES:
        return "home"
    if table in ("inputs", "fetches") or any(score.table == table for score in declared()):
        return "run"
    return "copy"


def described(lake: Lake, damage: Damage) -> str:
    """Return one line: the trouble, the table and file, what is lost and what that costs, the remedy."""
    place = damage.path.removeprefix("main/") or damage.table
    if damage.trouble == "source":
        return f"{damage.trouble:<8}{place}: {damage.detail}"
    if damage.trouble == "unfinished":
        return f"{damage.trouble} {damage.detail}; --repair and `pairmill maintain` finish it"
    how = "--repair removes what is superfluous" if damage.trouble == "doubled" else _HOW[redone_by(damage.table)]
    return f"{damage.trouble:<8}{place}: {damage.detail}; {damage.rows:,} rows{_cost(lake, damage)}; {how}"


def _cost(lake: Lake, damage: Damage) -> str:
    """Return the work that the rows of a lost file took, as the workers measured it; '' if nothing is recorded."""
    if not damage.path or damage.trouble == "doubled":
        return ""
    sql = "SELECT coalesce(sum(seconds), 0), count(DISTINCT shard) FROM partitions WHERE path = ?"
    seconds, shards = lake.query(sql, (damage.path,))[0]
    return f" of {shards} shard{'s'[: shards != 1]}, {seconds:,.1f} s of work" if shards else ""
