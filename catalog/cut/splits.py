"""Give each pair of a cut its split and its size, and find pairs whose group crosses splits.

Pairs are linked if they are near copies (one duplicate group, or an edge between them), come from one document, or have
pictures of one host, as the recipe's `split_by` says. Linked pairs, directly or over others, are a group, and a group
has one split. Pairs of earlier versions of the dataset link too: a picture keeps the split of the newest version that
has it, and a new one gets that of its group. If groups of several splits merge, all get the one with the largest share,
usually train. So no picture that was in train is ever held out, and the newest test set is clean for the models of
every earlier version; it loses pictures instead. New groups fill the held-out splits in the order of a hash; groups
larger than these go to the largest split whole.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import BadRecipe

# The host of a picture on the web, without user and port; NULL for a picture of a file.
HOST = "lower(nullif(regexp_extract(raw_image_url, '^https?://(?:[^/?#@]*@)?([^/?#:]+)', 1), ''))"


# (number of nodes, two arrays of linked nodes) -> the smallest node of each node's component
Components = Callable[[int, tuple[np.ndarray, ...]], np.ndarray]


@dataclass(frozen=True)
class Divided:
    """Result of `divide`."""

    split: np.ndarray  # number of each node's split, int8 (n,)
    moved: int  # current nodes that lost their former split because groups merged
    groups: int  # number of groups with current nodes
    too_large: int  # number of these that exceed every held-out split
    largest: int  # current nodes of the largest group
    smallest: int  # current nodes of the smallest group that had no split before; 0 without one


def ranked_splits(recipe: Recipe) -> list[str]:
    """Return the names of splits by share, largest first; 'test' comes after others of its share.

    If groups of several splits merge, the first of these names gets all, and the others lose pictures.
    """
    splits = recipe.splits or {}
    return sorted(splits, key=lambda name: (-splits[name], name == "test", name))


def nested_sizes(recipe: Recipe, n: int) -> list[tuple[str, int]]:
    """Return (name, number of pairs) of a recipe's sizes, smallest first, of ``n`` pairs in the largest split."""
    counts = {name: int(size) if size > 1 else max(1, round(size * n)) for name, size in (recipe.sizes or {}).items()}
    return sorted(counts.items(), key=lambda each: each[1])


def add_divisions(lake: Lake, plan: Plan, components: Components | None) -> tuple[str, ...]:
    """Add to ``cut_pairs`` the columns ``split`` and ``size``, if the recipe has them; return notes for the user.

    A million pairs take 5 CPU s, with a version of a million before too. Raises BadRecipe if a split gets no pair.
    """
    notes: list[str] = []
    joins = []
    if plan.recipe.splits:
        assert components is not None
        notes = _assign_splits(lake, plan, components)
        joins.append("split")
    if plan.recipe.sizes:
        _assign_sizes(lake, plan)
        joins.append("size")
    for name in joins:
        lake.execute(
            f"CREATE OR REPLACE TEMP TABLE cut_divided AS SELECT p.*, d.{name} FROM cut_pairs p "
            f"LEFT JOIN cut_{name}s d USING (sha256)"
        )
        lake.execute(f"DROP TABLE cut_pairs; DROP TABLE cut_{name}s; ALTER TABLE cut_divided RENAME TO cut_pairs")
    return tuple(notes)


def _assign_splits(lake: Lake, plan: Plan, components: Components) -> list[str]:
    """Create ``cut_splits(sha256, split)`` for the pairs of the cut; return notes for the user. Raises BadRecipe."""
    recipe, names = plan.recipe, ranked_splits(plan.recipe)
    shares = np.array([(recipe.splits or {})[name] for name in names])
    ranks = " ".join(f"WHEN {quoted(name)} THEN {rank}" for rank, name in enumerate(names))
    columns = f"sha256, document_id, {HOST} AS host"
    former = (
        f"SELECT sha256, arg_max(document_id, version) AS document_id, arg_max(host, version) AS host, "
        f"CAST(CASE arg_max(split, version) {ranks} ELSE -1 END AS TINYINT) AS former FROM (SELECT {columns}, split, "
        f"version FROM pairs WHERE dataset = {quoted(recipe.name)} AND split IS NOT NULL) GROUP BY sha256"
    )
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE split_nodes AS SELECT CAST(row_number() OVER (ORDER BY sha256) - 1 AS INTEGER) "
        "AS node, * FROM (SELECT coalesce(c.sha256, f.sha256) AS sha256, if(c.sha256 IS NULL, f.document_id, "
        "c.document_id) AS document_id, if(c.sha256 IS NULL, f.host, c.host) AS host, coalesce(f.former, -1) AS "
        f"former, c.sha256 IS NOT NULL AS current FROM (SELECT {columns} FROM cut_pairs) c "
        f"FULL JOIN ({former}) f USING (sha256))"
    )
    tables = [lake.table(sql) for _, sql in links(recipe, plan.scorer("image_groups"), "split_nodes")]
    node, key = (np.concatenate([each[name].to_numpy() for each in tables]) for name in ("node", "key"))
    draw = f"CAST('0x' || left(sha256(sha256 || '/split/{recipe.seed}'), 16) AS UBIGINT)"
    nodes = lake.table(f"SELECT former, current, {draw} AS draw FROM split_nodes ORDER BY node")
    is_current = nodes["current"].to_numpy()
    keys, place = np.unique(key, return_inverse=True)
    n = len(is_current)
    group = components(n + len(keys), (node.astype(np.int64), n + place))[:n]  # its smallest node, by sha256
    found = divide(group, nodes["former"].to_numpy(), is_current, nodes["draw"].to_numpy(), shares)
    counts = np.bincount(found.split[is_current], minlength=len(names))
    _refuse_empty(recipe, dict(zip(names, counts.tolist(), strict=True)), found)
    split = pa.DictionaryArray.from_arrays(pa.array(found.split.astype(np.int32)), pa.array(names)).cast(pa.string())
    lake.execute("CREATE OR REPLACE TEMP TABLE split_numbers (node INTEGER, split VARCHAR)")
    lake.insert("split_numbers", pa.table({"node": np.arange(len(found.split), dtype=np.int32), "split": split}))
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_splits AS SELECT sha256, split FROM split_nodes JOIN split_numbers "
        "USING (node) WHERE current"
    )
    lake.execute("DROP TABLE split_nodes; DROP TABLE split_numbers")
    return list(_notes(names, shares, counts, found))


def divide(
    group: np.ndarray, former: np.ndarray, is_current: np.ndarray, draw: np.ndarray, shares: np.ndarray
) -> Divided:
    """Give each group of nodes one split.

    A group with a former split keeps it, of several the smallest number. Other groups, in the order of ``draw`` of
    their smallest node, fill the splits from 1 up to their shares of the current nodes; what is left gets split 0. A
    group has a tenth of a split at most if smaller ones fill it.

    Of each of n nodes: ``group``, the smallest node of its group; ``former``, the number of its former split, -1
    without one; ``is_current``, whether it counts (others only link), bool; ``draw``, a hash of it, uint64. ``shares``
    are those of the splits, the largest first.
    """
    roots, of = np.unique(group, return_inverse=True)
    n, of_current = int(is_current.sum()), np.bincount(of[is_current], minlength=len(roots))
    none = len(shares)
    of_group = np.full(len(roots), none, np.int64)
    np.minimum.at(of_group, of, np.where(former < 0, none, former))
    is_new = (of_group == none) & (of_current > 0)
    order = np.flatnonzero(is_new)
    order = order[np.argsort(draw[roots[order]], kind="stable")]
    for split in range(1, none):
        wanted = round(shares[split] * n)
        left = wanted - int(of_current[of_group == split].sum())
        for most in (max(1, wanted // 10), wanted):
            order, left = _fill(of_group, of_current, order, split, left, most)
    of_group[of_group == none] = 0
    split = of_group[of]
    sizes = of_current[of_current > 0]
    return Divided(
        split.astype(np.int8),
        int((is_current & (former >= 0) & (former != split)).sum()),
        len(sizes),
        int((sizes > shares[1:].max() * n).sum()) if n else 0,
        int(sizes.max(initial=0)),
        int(of_current[is_new].min()) if is_new.any() else 0,
    )


def _fill(
    of_group: np.ndarray, sizes: np.ndarray, order: np.ndarray, split: int, left: int, most: int
) -> tuple[np.ndarray, int]:
    """Give groups of ``order`` with at most ``most`` nodes the split, until ``left`` nodes are found.

    Returns the groups that got none, in order, and the nodes that are still to be found.
    """
    able = order[sizes[order] <= min(most, left)]
    while len(able):
        end = np.searchsorted(np.cumsum(sizes[able]), left, side="right")
        of_group[able[:end]] = split
        left -= int(sizes[able[:end]].sum())
        able = able[end:]
        able = able[sizes[able] <= left]
    return order[of_group[order] != split], left


def links(recipe: Recipe, groups: str, nodes: str, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield (kind of link, SQL for node and key) for ``nodes(node, sha256, document_id, host)``; one key links nodes.

    ``groups`` is the digest of the scorer of duplicate groups; ``before`` is SQL, from AND on, on their commits.
    """
    for kind in recipe.split_links:
        if kind == "copies":
            of_scorer = f"FROM image_groups WHERE scorer = {quoted(groups)}{before}"
            newest = f'{of_scorer} AND "commit" = (SELECT max("commit") {of_scorer})'
            members = f"SELECT sha256, group_id {newest} UNION ALL SELECT DISTINCT group_id, group_id {newest}"
            yield kind, f"SELECT node, hash('g', group_id) AS key FROM {nodes} JOIN ({members}) USING (sha256)"
            # Of a group over `max_group`, which is divided, several pictures are kept: edges link them still.
            edges = (
                "SELECT a, b FROM duplicate_edges WHERE a IS NOT NULL AND scorer IN "
                f"(SELECT unnest(made_from) FROM scorers WHERE digest = {quoted(groups)}){before}"
            )
            ends = f"JOIN {nodes} x ON x.sha256 = a JOIN {nodes} y ON y.sha256 = b"
            yield kind, f"SELECT unnest([x.node, y.node]) AS node, hash('e', a, b) AS key FROM ({edges}) {ends}"
        else:
            column = {"documents": "document_id", "hosts": "host"}[kind]
            yield kind, f"SELECT node, hash('{kind}', {column}) AS key FROM {nodes} WHERE {column} IS NOT NULL"


def _refuse_empty(recipe: Recipe, counts: dict[str, int], found: Divided) -> None:
    """Raise BadRecipe if a split gets no pair, with the reason."""
    n = sum(counts.values())
    empty = [name for name, count in counts.items() if not count]
    if not empty or not n:
        return
    share = (recipe.splits or {})[empty[0]]
    if share * n < 0.5:
        why = f"{share:.3g} of {n:,} pairs is less than one; give it a larger share"
    elif not found.smallest:
        why = "every picture keeps the split of an earlier version; publish under another name"
    else:
        why = (
            f"it is to have {share:.3g} of {n:,} pairs, and they form {found.groups:,} groups of at least "
            f"{found.smallest:,}, the largest of {found.largest:,}; give it a larger share, or link fewer pairs, as "
            "`split_by: [copies, documents]` does"
        )
    raise BadRecipe(f"recipe '{recipe.name}', splits: '{empty[0]}' would get no pair: {why}.")


def _notes(names: list[str], shares: np.ndarray, counts: np.ndarray, found: Divided) -> Iterator[str]:
    """Yield notes on groups that are too large, on merged groups, and on splits that miss their share."""
    n = int(counts.sum())
    if found.too_large:
        groups = f"{found.too_large:,} groups, the largest of" if found.too_large > 1 else "one group of"
        yield (
            f"splits: too large for any split but '{names[0]}', which gets it: {groups} {found.largest:,} of {n:,} "
            "pairs; `split_by` says what connects pairs"
        )
    if found.moved:
        yield (
            f"splits: groups of several splits have merged: {found.moved:,} pairs moved to the larger split, and none "
            f"left '{names[0]}'"
        )
    for name, share, count in zip(names[1:], shares[1:], counts[1:], strict=True):
        if abs(count - share * n) > max(1, share * n / 4):
            yield (
                f"splits: '{name}' has {count / n:.2%} of the pairs instead of {share:.2%}, since pictures keep their "
                "split and groups stay whole"
            )


def _assign_sizes(lake: Lake, plan: Plan) -> None:
    """Create ``cut_sizes(sha256, size)``: the smallest size that holds each pair.

    Sizes are prefixes of one order, so they are nested. Their pairs are of the largest split; each size holds all pairs
    of the other splits, so these have the smallest size. Each cluster has its share in every prefix: its k-th of m
    pairs, in hash order, stands at (k - u) / m, u being a hash too.
    """
    recipe = plan.recipe
    of_split = f"split = {quoted(ranked_splits(recipe)[0])}" if recipe.splits else "true"
    joined = "cut_pairs JOIN cut_splits USING (sha256)" if recipe.splits else "cut_pairs"
    n = lake.query(f"SELECT count(*) FROM {joined} WHERE {of_split}")[0][0]
    ordered = nested_sizes(recipe, n)
    cases = " ".join(f"WHEN place <= {count} THEN {quoted(name)}" for name, count in ordered)
    bits = "CAST('0x' || substr(digest, {}, 16) AS UBIGINT)"
    cluster = "OVER (PARTITION BY cluster ORDER BY h, sha256)"
    of_cluster = f"(row_number() {cluster} - u / 18446744073709551616.0) / count(*) OVER (PARTITION BY cluster)"
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE cut_sizes AS WITH drawn AS (SELECT sha256, cluster, {bits.format(1)} AS h, "
        f"{bits.format(17)} AS u FROM (SELECT sha256, cluster, sha256(sha256 || '/size/{recipe.seed}') AS digest "
        f"FROM {joined} WHERE {of_split})), spread AS (SELECT sha256, h, {of_cluster} AS spot FROM drawn), "
        "placed AS (SELECT sha256, row_number() OVER (ORDER BY spot, h, sha256) AS place FROM spread) "
        f"SELECT sha256, CASE {cases} END AS size FROM placed"
        + (f" UNION ALL SELECT sha256, {quoted(ordered[0][0])} FROM cut_splits WHERE NOT {of_split}" if recipe.splits
           else "")
    )  # fmt: skip
