"""Select the pairs of an export: one split, a nested size, a number of pairs, or a mixture of versions by weights.

A mixture takes a picture once: pictures of several versions are divided among these, so that the largest mixture is as
large as possible. Two hashes of picture and seed order which ones a version gets, and which of its own are taken: equal
selections are equal on every machine, and a larger one has the pairs of a smaller one, but for one pair a version.

`name_files` names the pictures after their files at the source, so that no two names clash on any file system.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from pairmill.catalog.cut.released_address import released_pages
from pairmill.catalog.cut.splits import nested_sizes, ranked_splits
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.datasets import Dataset, find
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError, did_you_mean

_EXAMPLES = {"split": "splits={train: 0.98, val: 0.01, test: 0.01}", "size": "sizes=[nano, lite, full]"}


@dataclass(frozen=True)
class Selection:
    """Versions whose pairs an export takes; several are a mixture by ``weights``, shares above 0 with any sum.

    ``conditions``: for each version, SQL that begins with AND and limits its pairs; '' takes all. ``split`` and
    ``size``: their names, '' for all. ``pairs``: the number of pairs; None takes all, or the largest mixture. ``seed``
    decides which pairs. ``listed``: digest of the list of pictures to take, '' for all. ``counts``: the number of pairs
    of each version, known after `taken`.
    """

    versions: tuple[Dataset, ...]
    weights: tuple[Fraction, ...] = (Fraction(1),)
    conditions: tuple[str, ...] = ("",)
    split: str = ""
    size: str = ""
    pairs: int | None = None
    seed: int = 0
    listed: str = ""
    counts: tuple[int, ...] = ()

    def __str__(self) -> str:
        return " and ".join(map(str, self.versions))

    @property
    def is_mixture(self) -> bool:
        """Whether pairs of several versions are taken."""
        return len(self.versions) > 1

    @property
    def is_drawn(self) -> bool:
        """Whether the seed decides which pairs are taken: in a mixture, and for a number of pairs."""
        return self.is_mixture or self.pairs is not None

    def candidates(self, place: int) -> str:
        """Return the SQL condition for the pairs of version number ``place`` that have the wanted split and size."""
        return f"{self.versions[place].where}{self.conditions[place]}"

    @property
    def where(self) -> str:
        """SQL condition for the selected rows of ``pairs``; after `taken` if pairs are drawn."""
        if not self.is_drawn:
            return self.candidates(0)
        taken = "(dataset, version, image_id) IN (SELECT (dataset, version, image_id) FROM export_taken)"
        return f"({_any_of(self.versions)}) AND {taken}"

    @property
    def n_texts(self) -> int:
        """Number of columns of real texts."""
        return max(each.n_texts for each in self.versions)

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Columns of rights, `split` and `size` that at least one of the versions has."""
        found = {name for each in self.versions for name in each.optional_columns}
        return tuple(name for name in text_columns.OPTIONAL if name in found)

    def given(self) -> dict[str, Any]:
        """Return the options that differ from an export of a whole version."""
        weighted = zip(self.versions, self.weights, strict=True)
        mixture = " ".join(f"{each}:{float(weight):g}" for each, weight in weighted) if self.is_mixture else ""
        found: dict[str, Any] = {"mixture": mixture, "split": self.split, "size": self.size, "list": self.listed}
        found["pairs"] = self.pairs or ""
        return {k: v for k, v in (found | {"seed": self.seed if self.is_drawn else ""}).items() if v != ""}


def _any_of(versions: Sequence[Dataset]) -> str:
    """Return the SQL condition for rows of any of the versions."""
    return " OR ".join(f"({each.where})" for each in versions)


def select(
    lake: Lake, specs: Sequence[str], split: str = "", size: str = "", pairs: int | None = None, seed: int = 0,
    pictures: Sequence[str] | None = None,
) -> Selection:  # fmt: skip
    """Return the selection of versions ``NAME[@VERSION|@TAG][:WEIGHT]``, of weight 1 by default.

    ``pictures``: take these sha256s alone.
    Raises PairmillError if a version does not exist or stands twice, a weight is not above 0, a version lacks the split
    or size, or a mixture has versions with splits and names none.
    """
    versions, weights = [], []
    for name, colon, weight in (spec.partition(":") for spec in specs):
        versions.append(find(lake, name))
        try:
            weights.append(Fraction(weight) if colon else Fraction(1))
        except (ValueError, ZeroDivisionError):
            weights.append(Fraction(0))
        if weights[-1] <= 0:
            raise PairmillError(f"'{name}:{weight}' has no weight above 0; give one such as {name}:0.7.")
    if twice := next((each for each in versions if versions.count(each) > 1), None):
        raise PairmillError(f"{twice} stands twice in the mixture. Give it once, with the sum of its weights.")
    if pairs is not None and pairs < 1:
        raise PairmillError(f"--pairs {pairs}: give 1 or more.")
    with_splits = next((each for each in versions if "split" in each.optional_columns), None)
    if len(versions) > 1 and with_splits and not split:
        names = " or ".join(ranked_splits(plan_of(lake, with_splits).recipe))
        raise PairmillError(f"{with_splits} has splits, and a mixture is of one: give --split {names}.")
    conditions = [_condition(lake, each, split, size) if split or size else "" for each in versions]
    if split and len(versions) > 1:  # what one version holds out is in no other split of the mixture
        elsewhere = f"SELECT sha256 FROM pairs WHERE ({_any_of(versions)}) AND split <> {quoted(split)}"
        conditions = [f"{each} AND sha256 NOT IN ({elsewhere})" for each in conditions]
    listed = ""
    if pictures is not None:
        lake.execute("CREATE OR REPLACE TEMP TABLE export_listed AS SELECT unnest(?::VARCHAR[]) AS sha256", (pictures,))
        conditions = [f"{each} AND sha256 IN (SELECT sha256 FROM temp.export_listed)" for each in conditions]
        if not lake.query(f"SELECT 1 FROM pairs WHERE ({_any_of(versions)}){conditions[0]} LIMIT 1"):
            raise PairmillError(f"no picture of the list is in a pair of {versions[0]}. Nothing was written.")
        listed = hashlib.sha256(" ".join(sorted(pictures)).encode()).hexdigest()[:16]
    return Selection(tuple(versions), tuple(weights), tuple(conditions), split, size, pairs, seed, listed)


def _condition(lake: Lake, dataset: Dataset, split: str, size: str) -> str:
    """Return the SQL condition for a version's split and nested size. Raises PairmillError if it has none of the name.

    A size holds the smaller ones, and all pairs of the held-out splits.
    """
    recipe = plan_of(lake, dataset).recipe
    for option, name, names in (("split", split, recipe.splits or {}), ("size", size, recipe.sizes or {})):
        if name and name not in names:
            make = f"it has no {option}s; make some: pairmill recut {dataset} --set '{_EXAMPLES[option]}'"
            remedy = (did_you_mean(name, names) or f"there are {', '.join(names)}.") if names else make
            raise PairmillError(f"--{option} {name}: {dataset} has none of this name; {remedy}")
    found = f" AND split = {quoted(split)}" if split else ""
    if size:
        largest = f" AND split = {quoted(ranked_splits(recipe)[0])}" if recipe.splits else ""
        n = lake.query(f"SELECT count(*) FROM pairs WHERE {dataset.where}{largest}")[0][0]
        names = [name for name, _ in nested_sizes(recipe, n)]
        found += f" AND size IN ({', '.join(map(quoted, names[: names.index(size) + 1]))})"
    return found


def taken(lake: Lake, of: Selection) -> Selection:
    """Draw the pairs of a selection into the table ``export_taken``; return it with their ``counts``.

    DuckDB sorts the pictures and spills to disk, some 100 bytes a picture. A selection that is not drawn is counted.
    Raises PairmillError if the versions have too few pairs.
    """
    if not of.is_drawn:
        return replace(of, counts=lake.query(f"SELECT count(*) FROM pairs WHERE {of.candidates(0)}")[0])
    places = range(len(of.versions))
    keys = "sha256, image_id, dataset, version"
    each = " UNION ALL ".join(f"SELECT {keys}, {k} AS place FROM pairs WHERE {of.candidates(k)}" for k in places)
    lake.execute(f"""CREATE OR REPLACE TEMP TABLE export_candidates AS SELECT sha256, bit_or(1::BIGINT
        << place) AS places, sha256(sha256 || '/mixture/{of.seed}') AS digest FROM ({each}) GROUP BY sha256""")
    sizes = dict(lake.query("SELECT places, count(*) FROM export_candidates GROUP BY places ORDER BY places"))
    owned = largest_mixture(sizes, of.weights)
    most = [sum(n for (_, place), n in owned.items() if place == each) for each in places]
    wanted = of.pairs or sum(most)
    counts = divided(min(wanted, sum(most)), of.weights, most)
    if wanted > sum(most) or 0 in counts:
        has = (sum(n for where, n in sizes.items() if where >> place & 1) for place in places)
        there_are = ", ".join(f"{version} has {n:,}" for version, n in zip(of.versions, has, strict=True))
        why = f"there are {sum(most):,} at most" if wanted > sum(most) else f"{of.versions[counts.index(0)]} gives none"
        once = "; a picture of several counts once" if of.is_mixture else ""
        raise PairmillError(f"{wanted:,} pairs: {why} ({there_are}{once}). Give other weights or --pairs, or versions.")
    ends, owners = Counter[int](), ""
    for (where, place), n in owned.items():
        ends[where] += n
        owners += f"WHEN places = {where} AND rank <= {ends[where]} THEN {place} "
    limits = " ".join(f"WHEN {place} THEN {n}" for place, n in enumerate(counts))
    lake.execute(f"""CREATE OR REPLACE TEMP TABLE export_taken AS WITH ranked AS (SELECT *, row_number() OVER
        (PARTITION BY places ORDER BY left(digest, 32), sha256) AS rank FROM export_candidates),
        owned AS (SELECT sha256, digest, CASE {owners} END AS place FROM ranked), taken AS (SELECT sha256, place
        FROM owned WHERE place IS NOT NULL QUALIFY row_number() OVER (PARTITION BY place ORDER BY right(digest, 32),
        sha256) <= CASE place {limits} END) SELECT image_id, dataset, version FROM taken JOIN ({each})
        USING (sha256, place)""")
    lake.execute("DROP TABLE temp.export_candidates")
    return replace(of, counts=tuple(counts))


def divided(n: int, weights: Sequence[Fraction], most: Sequence[int] | None = None) -> list[int]:
    """Divide ``n`` by ``weights``, by the largest remainder; of equal ones the first. No part exceeds its ``most``."""
    exact = [n * each / sum(weights) for each in weights]
    counts = [int(each) for each in exact]
    while sum(counts) < n:
        able = (place for place in range(len(counts)) if most is None or counts[place] < most[place])
        counts[max(able, key=lambda place: exact[place] - counts[place])] += 1
    return counts


def largest_mixture(sizes: Mapping[int, int], weights: Sequence[Fraction]) -> dict[tuple[int, int], int]:
    """Return the number of pictures by (key of ``sizes``, version) of the largest mixture that repeats none.

    ``sizes``: number of pictures by the versions that have them; bit k of the key stands for version k.
    """
    low, high, found = 0, sum(sizes.values()), Counter[tuple[int, int]]()
    while low < high:
        middle = (low + high + 1) // 2
        if owned := _owners(sizes, divided(middle, weights)):
            low, found = middle, owned
        else:
            high = middle - 1
    return {key: n for key, n in sorted(found.items()) if n}


def _owners(sizes: Mapping[int, int], wanted: Sequence[int]) -> Counter[tuple[int, int]] | None:
    """Divide the pictures so that version k gets ``wanted[k]``; return None if that is not possible.

    Keys and values are those of `largest_mixture`. A maximum flow by augmenting paths (Ford and Fulkerson, 1956).
    """
    left, owned = dict(sizes), Counter[tuple[int, int]]()

    def gain(place: int, n: int, seen: set[int]) -> int:
        """Give a version up to ``n`` more pictures: free ones, or others' that can gain more in turn."""
        seen.add(place)
        got = 0
        for where in (each for each in left if each >> place & 1):
            more = min(n - got, left[where])
            left[where] -= more
            for other in range(len(wanted)):
                if other not in seen and (able := min(n - got - more, owned[where, other])):
                    moved = gain(other, able, seen)
                    owned[where, other] -= moved
                    more += moved
            owned[where, place] += more
            got += more
        return got

    for place, n in enumerate(wanted):
        while n:
            if not (more := gain(place, n, set())):
                return None
            n -= more
    return owned


_SUFFIX = r"\.(jpe?g|jpe|jfif|a?png|gif|webp|bmp|dib|tiff?|avif)$"
# A folder of such a name may clash with a file of it: `a.jpg/b.png` beside `a.jpg`.
_FILE_LIKE = r"\.(jpe?g|jpe|jfif|a?png|gif|webp|bmp|dib|tiff?|avif|txt|jsonl|part)$"
# Characters that Windows forbids, control codes, and those that end a path in an address.
_FORBIDDEN = r'[\x00-\x1f\x7f<>:"\\|?*]'
_RESERVED = r"^(con|prn|aux|nul|com[0-9]|lpt[0-9])( *(\.|$))"  # names of devices on Windows, with any suffix
# Bytes of a part, and characters of a longer one, of 4 bytes at most: 12 digits, suffix and `.part` are added, and file
# systems allow 255. Bytes of a path: S3 allows 1,024 with the prefix; a longer one is the picture's id.
_PART, _CHARACTERS, _PATH = 200, 50, 700


def name_files(lake: Lake) -> None:
    """Add the columns ``file_name`` and ``local`` to the table ``export_rows``.

    ``file_name`` is the picture's path below its source, or its address without scheme: sub-folders divided by '/',
    without hidden parts, '..' and characters that Windows forbids. It ends in a picture's suffix. Of paths that are
    equal without suffix and case, since each has a `.txt`, the first by id keeps it; others get 12 digits of their ids.

    ``local`` is the absolute path at which a local source has the file, NULL if it has none.
    """
    pages = released_pages("SELECT document_id FROM export_rows")
    # A file's document has the file's address; its metadata may give the picture another address, on the web.
    own = f"regexp_matches(coalesce(page, ''), '{_SUFFIX}', 'i')"
    address = f"CASE WHEN {own} THEN page ELSE coalesce(raw_image_url, page, '') END"
    web = "regexp_replace(regexp_replace(address, '^[A-Za-z0-9]+://', ''), '[?#].*$', '')"
    path = f"CASE WHEN contains(address, '://') THEN {web} WHEN contains(address, '&path=') THEN " \
        "regexp_replace(address, '^.*&path=', '') ELSE replace(address, '#', '/') END"  # fmt: skip
    part = f"regexp_replace(regexp_replace(x, '{_FORBIDDEN}', '_', 'g'), '^[. ]+|[. ]+$', '', 'g')"
    parts = f"list_filter(list_transform(string_split({path}, '/'), x -> {part}), x -> x <> '')"
    folders = f"list_transform(parts[:-2], x -> regexp_replace({_fitting('x')}, '{_FILE_LIKE}', '_\\1', 'i') || '/')"
    last = "coalesce(parts[-1], image_id)"
    file = _fitting(f"regexp_replace({last}, '{_SUFFIX}', '', 'i')")
    usual = "CASE format WHEN 'jpeg' THEN '.jpg' WHEN 'tiff' THEN '.tif' ELSE '.' || format END"
    lake.execute(
        f"""CREATE OR REPLACE TEMP TABLE export_rows AS WITH addressed AS (SELECT e.*, folder, {address} AS address
            FROM export_rows e LEFT JOIN ({pages}) p USING (document_id)),
        split AS (SELECT *, {parts} AS parts FROM addressed),
        stems AS (SELECT *, list_aggregate(list_concat([''], {folders}), 'string_agg', '')
            || {file} AS long_stem, CASE WHEN strlen(long_stem) > {_PATH} THEN image_id ELSE long_stem END AS stem,
            coalesce(nullif(regexp_extract({last}, '{_SUFFIX}', 0, 'i'), ''), {usual}) AS suffix FROM split),
        counted AS (SELECT *, row_number() OVER (PARTITION BY lower(nfc_normalize(stem)) ORDER BY image_id) AS nth
            FROM stems)
        SELECT * EXCLUDE (folder, address, parts, long_stem, stem, suffix, nth),
            stem || CASE WHEN nth > 1 THEN '-' || left(image_id, 12) ELSE '' END || suffix AS file_name,
            CASE WHEN folder <> '' AND NOT contains(address, '://') THEN folder || address END AS local
        FROM counted ORDER BY n"""
    )


def _fitting(x: str) -> str:
    """Return SQL for the part ``x`` of a path, short enough and under a name that Windows allows."""
    cut = f"CASE WHEN strlen({x}) <= {_PART} THEN {x} ELSE rtrim(left({x}, {_CHARACTERS}), '. ') END"
    return f"regexp_replace({cut}, '{_RESERVED}', '_\\1\\2', 'i')"
