"""Assign sentences to the kept images: to each its best few, no sentence to more than ``max_uses`` images.

The result equals processing all (image, sentence) pairs in order of similarity, or of the recipe's `rank_by` (ties:
smaller sha256, then the image's order), while both have room. This is also the only stable matching (Gale and Shapley
1962), because both sides rank by the same number. Only images that may lose a sentence to others are decided pair by
pair: a sentence wanted by at most ``max_uses`` images is free.

A candidate represents its group of duplicates. The assigned sentence is the group's keeper: the smallest content among
the members that pass the rules and occur in a current document. Its similarity is the candidate's. The candidate itself
may fail a rule or be gone. A group without a keeper assigns nothing.

DuckDB sorts and joins, spilling to disk. Lookups of single sentences use arrays: 12 bytes per sentence of the lake, 10
GB for 800M.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pairmill.catalog.cut.keepers import NOBODY
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import passed
from pairmill.catalog.recipe.plan import Plan

IMAGES_AT_ONCE, PAIRS_AT_ONCE = 200_000, 2_000_000
LIVE = 50_000  # rows per step of _greedy; fewer than 2^16, the range of its counters
ANY_NUMBER = 2**32 - 1


def best_sentences(lake: Lake, plan: Plan, keepers: np.ndarray) -> np.ndarray:
    """Return each picture's best sentence, as if no other image used it: the keeper of its best candidate.

    (n,) uint32, sentence numbers by picture number; NOBODY if the picture has fewer candidates with a keeper than the
    recipe's `at_least`. A bit per sentence says whether it has a keeper: 5 MB of 40M sentences, not 160, are looked up.
    """
    pictures = lake.query("SELECT coalesce(max(picture), -1) + 1 FROM facts.images")[0][0]
    best, passes = np.full(pictures, NOBODY, np.uint32), np.packbits(keepers != NOBODY, bitorder="little")
    for batch in lake.blocks(f"SELECT picture, sentences FROM {candidates(plan)}", rows=IMAGES_AT_ONCE):
        lists, picture = batch["sentences"], batch["picture"].to_numpy()
        offered = lists.values.to_numpy()
        bits = passes[offered >> 3] >> (offered.astype(np.uint8) & np.uint8(7)) & np.uint8(1)
        at = np.flatnonzero(bits.view(bool))  # 3 ns a candidate less than of bytes
        bounds = np.searchsorted(at, lists.offsets.to_numpy())
        enough = np.diff(bounds) >= max(1, plan.recipe.association.at_least)
        best[picture[enough]] = keepers[offered[at[bounds[:-1][enough]]]]
    return best


def assign_texts(lake: Lake, plan: Plan, keepers: np.ndarray) -> None:
    """Assign up to `top_k` sentences to each kept image, no sentence to more than `max_uses` images.

    Reads the table ``cut_kept(n, picture)``: one image ``n`` a picture. Creates ``cut_given(n, s, similarity, place)``:
    image ``n`` has sentence number ``s`` at ``place``, from 1. Creates ``cut_textless(n)``: images to which `max_uses`
    leaves fewer sentences than `at_least`. These get none, and other images do not get theirs instead.
    """
    top_k, max_uses = plan.recipe.association.top_k, plan.recipe.association.max_uses or ANY_NUMBER
    given = "n UINTEGER, s UINTEGER, similarity DOUBLE, place INTEGER"
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE cut_given ({given}); "
        f"CREATE OR REPLACE TEMP TABLE cut_contested ({given}, score DOUBLE); "
        "CREATE OR REPLACE TEMP TABLE cut_contenders (n UINTEGER)"
    )
    ranks = "ranks" if plan.recipe.association.rank_by else "similarities"
    columns = ", ".join(dict.fromkeys(("n", "sentences", "similarities", ranks)))
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE cut_offers AS SELECT {columns} FROM {candidates(plan)} JOIN cut_kept "
        "USING (picture)"
    )
    wanted = np.zeros(len(keepers), np.uint32)
    for offers in _blocks(lake, "sentences"):
        given = keepers[_flat(offers["sentences"])]
        np.add.at(wanted, given[given != NOBODY].astype(np.intp), np.uint32(1))  # 10 times slower with other dtypes
    for offers in _blocks(lake, columns):
        choices, image = _choices(offers, keepers, ranks)
        first = choices["place"].to_numpy() <= top_k
        losing = np.zeros(offers.num_rows, bool)
        losing[image[first & (wanted[choices["s"].to_numpy()] > max_uses)]] = True
        lake.insert("cut_given", choices.filter(pa.array(first & ~losing[image])).drop_columns("score"))
        if losing.any():
            lake.insert("cut_contested", choices.filter(pa.array(losing[image])))
            lake.insert("cut_contenders", offers.select(["n"]).filter(pa.array(losing)))
    lake.execute("DROP TABLE cut_offers")
    del wanted
    if lake.query("SELECT 1 FROM cut_contenders LIMIT 1"):
        _assign_contested(lake, top_k, max_uses)
    lake.execute("DROP TABLE cut_contenders; DROP TABLE cut_contested")
    if (at_least := plan.recipe.association.at_least) > 1:
        few = f"SELECT n FROM cut_given GROUP BY n HAVING count(*) < {at_least}"
        lake.execute(f"DELETE FROM cut_given WHERE n IN ({few})")
    without = "WHERE n NOT IN (SELECT n FROM cut_given)" if at_least else "WHERE false"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_textless AS SELECT n FROM cut_kept {without}")


def assigned_texts() -> str:
    """Return SQL for the texts that `assign_texts` assigned: (image_id, place, content, text, similarity)."""
    return (
        "SELECT i.image_id, g.place, s.content, s.text, g.similarity "
        "FROM cut_given g JOIN facts.images i ON i.rowid = g.n JOIN facts.contents c ON c.rowid = g.s "
        "JOIN sentence_content s ON facts.key_of(s.content) = c.key"
    )


def candidates(plan: Plan) -> str:
    """Return SQL for (picture, sentences, similarities, ranks): each picture's candidates that pass the rules on pairs.

    Ordered by the recipe's `rank_by`, a candidate without that score last; without it there is no column ``ranks``.
    """
    rank = plan.recipe.association.rank_by
    if not plan.candidate_checks and not rank:
        return "facts.matches"
    lists = "".join(f", unnest({name}) AS {name}" for name, _ in plan.candidate_columns)
    every = (
        "SELECT picture, unnest(sentences) AS sentence, unnest(similarities) AS similarity, "
        f"unnest(range(len(sentences))) AS place{lists} FROM facts.matches"
    )
    every = f"SELECT * FROM ({every}){join_uses(plan)}"
    score = f"coalesce({rank}, '-infinity'::DOUBLE)" if rank else "similarity"
    order = f"ORDER BY {score} DESC, place"
    columns = {"sentences": "sentence", "similarities": "similarity"} | ({"ranks": score} if rank else {})
    listed = ", ".join(f"list({value} {order}) AS {name}" for name, value in columns.items())
    return f"(SELECT picture, {listed} FROM ({every}) WHERE {passed(plan.candidate_checks)} GROUP BY picture)"


def join_uses(plan: Plan) -> str:
    """Return SQL that joins ``text_uses`` to rows with a sentence number; '' if no rule on candidates reads it.

    Counts over all candidates, before any rule: 12 bytes of memory a distinct sentence, 360M rows at 30M pictures.
    """
    if not any("text_uses" in check.columns for check in plan.candidate_checks):
        return ""
    of_each = "SELECT unnest(sentences) AS sentence FROM facts.matches"
    return f" JOIN (SELECT sentence, count(*) AS text_uses FROM ({of_each}) GROUP BY sentence) USING (sentence)"


def _blocks(lake: Lake, columns: str) -> Iterator[pa.Table]:
    """Yield ``cut_offers`` in batches of IMAGES_AT_ONCE rows; other statements may run in between."""
    rows = lake.query("SELECT count(*) FROM cut_offers")[0][0]
    for start in range(0, rows, IMAGES_AT_ONCE):
        yield lake.table(
            f"SELECT {columns} FROM cut_offers WHERE rowid BETWEEN {start} AND {start + IMAGES_AT_ONCE - 1}"
        )


def _choices(offers: pa.Table, keepers: np.ndarray, ranks: str) -> tuple[pa.Table, np.ndarray]:
    """Return the candidates that an image may get, and for each its image's row in ``offers``.

    An image may get a candidate if a sentence of its group passes.

    Columns: ``n``, the image's number; ``s``, the number of the sentence to assign (of a group of duplicates its
    keeper); ``similarity``; ``place``, from 1 within the image; ``score``, of column ``ranks``, which ranks pairs.
    """
    s, lengths = keepers[_flat(offers["sentences"])], offers["sentences"].combine_chunks().value_lengths().to_numpy()
    at = np.flatnonzero(s != NOBODY)
    s, image = s[at], np.repeat(np.arange(len(lengths)), lengths)[at]
    first = np.searchsorted(image, np.arange(offers.num_rows))
    columns = {
        "n": offers["n"].to_numpy()[image],
        "s": s,
        "similarity": _flat(offers["similarities"])[at],
        "place": (np.arange(1, len(image) + 1) - first[image]).astype(np.int32),
        "score": _flat(offers[ranks])[at],
    }
    return pa.table(columns), image


def _flat(lists: pa.ChunkedArray) -> np.ndarray:
    """Return the concatenated values of all lists."""
    return lists.combine_chunks().flatten().to_numpy(zero_copy_only=False)


def _assign_contested(lake: Lake, top_k: int, max_uses: int) -> None:
    """Assign sentences to the images of ``cut_contenders``, pair by pair of ``cut_contested``."""
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_ordered AS SELECT n, row_number() OVER (ORDER BY sha256) - 1 AS image "
        "FROM cut_contenders JOIN facts.images i ON i.rowid = n"
    )
    counts = "SELECT (SELECT count(*) FROM cut_ordered), (SELECT count(*) FROM facts.contents)"
    images, sentences = lake.query(counts)[0]
    wants, room = np.full(images, top_k, np.uint32), np.full(sentences, max_uses, np.uint32)
    ordered = (
        "SELECT image, n, s, similarity, place FROM cut_contested JOIN cut_ordered USING (n) "
        "ORDER BY score DESC, image, place"
    )
    taken = []
    for batch in lake.blocks(ordered, rows=PAIRS_AT_ONCE):
        hits = _greedy(batch["image"].to_numpy(), batch["s"].to_numpy(), wants, room)
        taken.append(batch.select(["n", "s", "similarity", "place"]).take(pa.array(hits)))
    lake.execute("CREATE OR REPLACE TEMP TABLE cut_taken AS FROM cut_given WHERE false")
    lake.insert("cut_taken", pa.Table.from_batches(taken))
    lake.execute(
        "INSERT INTO cut_given BY NAME SELECT n, s, similarity, row_number() OVER (PARTITION BY n ORDER BY place) AS "
        "place FROM cut_taken; DROP TABLE cut_taken; DROP TABLE cut_ordered"
    )


def _greedy(image: np.ndarray, s: np.ndarray, wants: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Take pairs in order while both sides have room, decrementing ``wants`` and ``room``; return their row numbers.

    Within a step of LIVE rows, a pair whose image and sentence have room for all their pairs of the step is taken in
    any case; only the other pairs are decided one by one.
    """
    hits = [np.zeros(0, np.int64)]
    of_image, of_sentence = np.zeros(len(wants), np.uint16), np.zeros(len(room), np.uint16)
    for start in range(0, len(image), LIVE):
        here = slice(start, start + LIVE)
        live = start + np.flatnonzero((wants[image[here]] > 0) & (room[s[here]] > 0))
        i, j = image[live].astype(np.intp), s[live].astype(np.intp)
        taken = (_times(i, of_image) <= wants[i]) & (_times(j, of_sentence) <= room[j])
        others = np.flatnonzero(~taken)
        np.subtract.at(wants, i[taken], wants.dtype.type(1))
        np.subtract.at(room, j[taken], room.dtype.type(1))
        for at, one, other in zip(others.tolist(), i[others].tolist(), j[others].tolist(), strict=True):
            if wants[one] and room[other]:
                wants[one] -= 1
                room[other] -= 1
                taken[at] = True
        hits.append(live[taken])
    return np.concatenate(hits)


def _times(numbers: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """Return for each of ``numbers`` how often it occurs among them, at most LIVE; ``zeros`` is scratch space."""
    np.add.at(zeros, numbers, zeros.dtype.type(1))
    times = zeros[numbers]
    zeros[numbers] = 0
    return times
