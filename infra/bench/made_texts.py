"""Write synthetic captions, tags and fused texts for a wave, each with the digest of its inputs.

Half of the fused texts pass the similarity rule of `30m`; three in a hundred are cut off.
"""

from __future__ import annotations

from infra.bench.made_lake import write
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.chosen_captions import text_digest
from pairmill.catalog.pending.generated import fusion_digest
from pairmill.catalog.write.commit import commit

CAPTION = """SELECT sha256, 'main' AS captioner, 'a picture that shows ' || left(sha256, 12) AS text,
    if(hash(sha256) % 50 = 0, 'cut_off', 'ok') AS status, 40 AS n_tokens, 1.5 AS seconds"""
TAGS = """SELECT sha256, ['word' || hash(sha256, 1) % 500, 'word' || hash(sha256, 2) % 500] AS tags,
    [0.3, 0.2] AS tag_similarities"""
FUSED = """SELECT *, 'what is told of ' || sha256 AS synthetic_text,
    if(hash(sha256, 4) % 33 = 0, 'cut_off', 'ok') AS synthetic_status, 60 AS n_tokens, 2.0 AS seconds"""


def caption(lake: Lake, wave: str, number: int) -> None:
    """Commit a caption, its similarity, and tags for each picture of ``wave_asked``."""
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE made_asked AS SELECT a.*, c.shard FROM wave_asked a JOIN image_content c "
        "ON c.sha256 = a.sha256"
    )
    captions = f"({CAPTION}, shard FROM made_asked)"
    fits = f"SELECT sha256, shard, {text_digest('text')} AS input_digest, 0.3 AS caption_similarity FROM {captions}"
    of_table = {"captions": f"FROM {captions}", "caption_similarity": fits, "tags": f"{TAGS}, shard FROM made_asked"}
    _commit(lake, of_table, wave, number)


def fuse(lake: Lake, wave: str, number: int) -> None:
    """Commit a fused text and its similarity for each picture of ``wave_asked``, from the outputs of `caption`."""
    digest = fusion_digest("if(c.status = 'ok', c.text, '')", "t.tags", "a.sentence")
    made = (
        f"(SELECT a.sha256, a.shard, {digest} AS input_digest FROM made_asked a "
        f"JOIN ({CAPTION} FROM made_asked) c ON c.sha256 = a.sha256 JOIN ({TAGS} FROM made_asked) t "
        "ON t.sha256 = a.sha256)"
    )
    fits = (
        f"SELECT sha256, shard, {text_digest('synthetic_text')} AS input_digest, "
        f"round(0.46 + hash(sha256, 3) % 2000 / 10000, 4) AS synthetic_similarity FROM ({FUSED} FROM {made})"
    )
    _commit(lake, {"synthetic": f"{FUSED} FROM {made}", "synthetic_similarity": fits}, wave, number)


def _commit(lake: Lake, made: dict[str, str], wave: str, number: int) -> None:
    """Commit the rows of SQL ``made``, by table, one file a shard."""
    for (shard,) in lake.query("SELECT DISTINCT shard FROM made_asked ORDER BY shard"):
        of_shard = {table: f"SELECT * FROM ({sql}) WHERE shard = '{shard}'" for table, sql in made.items()}
        commit(lake, [write(lake, table, shard, sql, number, part=f"wave{wave}") for table, sql in of_shard.items()])
