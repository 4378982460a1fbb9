"""Add a sample of a version's sentences to its gallery file, with the scores that its rules read."""

from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import judged_sentences
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of

SENTENCES = 20_000  # the share that a rule drops is known to within 0.7 % (95 %)
LONGEST = 300  # characters of a sentence that are stored


def add_sentences(lake: Lake, dataset: Dataset, path: Path) -> None:
    """Write the table ``sentences`` into the DuckDB file ``path``: SENTENCES distinct sentences, ordered by content.

    The sample has the smallest content ids. Ids are hashes, so the sample is random. One scan of all distinct sentences
    finds it; scores are joined to the sample alone. Columns: content, text, shard, each column that a rule on sentences
    reads, ``dropped_by`` ('' or the first failed rule) and ``dropped_value``.
    """
    with lake.pinned():
        lake.execute(f"ATTACH {quoted(str(path))} AS gallery")
        try:
            known = f"sentence_content WHERE commit <= {dataset.commit} ORDER BY content LIMIT {SENTENCES}"
            lake.execute(f"CREATE TEMP TABLE sampled_sentences AS SELECT content, text, shard FROM {known}")
            judged = judged_sentences(plan_of(lake, dataset), dataset.commit, "sampled_sentences")
            columns = f"* REPLACE (left(text, {LONGEST}) AS text)"
            lake.execute(f"CREATE TABLE gallery.sentences AS SELECT {columns} FROM ({judged}) ORDER BY content")
        finally:
            lake.execute("DROP TABLE IF EXISTS temp.sampled_sentences")
            lake.execute("DETACH gallery")
