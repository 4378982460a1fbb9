"""Import word probabilities counted elsewhere, for corpora too small for probabilities of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from pairmill.ops.text.corpus_entropy import RAREST

WORDFREQ = "wordfreq:"
EXPECTED = "give a Parquet file with columns word, n, or a text file of lines 'word<TAB>count'"


class CountsError(Exception):
    """Word counts are missing or have an unknown format; the message says where, and the remedy."""


def imported(place: str) -> tuple[pa.Table, bool]:
    """Read a table of ``word`` and ``p``, sorted by word; and whether the words are in lower case.

    ``p`` is a word's share of all counted words; words with a share below RAREST are dropped. ``place`` is a file, or
    'wordfreq:en' for the list of the package wordfreq in that language. wordfreq's lists are in lower case and have no
    punctuation, so their entropies are some tenths lower.

    Raises:
        CountsError: The counts cannot be read.
    """
    if place.startswith(WORDFREQ):
        return _from_wordfreq(place.removeprefix(WORDFREQ)), True
    counts = _read(Path(place).expanduser())
    if counts["word"].null_count or counts["n"].null_count:
        raise CountsError(f"word counts '{place}': a word or a count is missing; {EXPECTED}")
    words, n = counts["word"].to_pylist(), counts["n"].to_numpy()
    if not n.sum() or n.min() < 0:
        raise CountsError(f"word counts '{place}': a count is negative, or there is none; {EXPECTED}")
    if len(set(words)) != len(words):
        raise CountsError(f"word counts '{place}': a word is there twice; add its counts up and give it one line")
    return _frequent(words, n / n.sum()), False


def _read(file: Path) -> pa.Table:
    """Read the columns ``word`` and ``n`` from a Parquet or tab-separated file."""
    try:
        if file.suffix == ".parquet":
            table = pq.read_table(file, columns=["word", "n"])
        else:
            table = csv.read_csv(
                file,
                csv.ReadOptions(column_names=["word", "n"]),
                csv.ParseOptions(delimiter="\t", quote_char=False),
                csv.ConvertOptions(column_types={"word": pa.string(), "n": pa.int64()}, strings_can_be_null=False),
            )
        return pa.table({"word": table["word"].cast(pa.string()), "n": table["n"].cast(pa.int64())})
    except (OSError, pa.ArrowException, KeyError) as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise CountsError(f"word counts '{file}' cannot be read ({reason}); {EXPECTED}") from error


def _from_wordfreq(language: str) -> pa.Table:
    """Read the words and shares of a language from the package wordfreq."""
    try:
        from wordfreq import get_frequency_dict  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise CountsError(
            "word counts 'wordfreq:…' need the package wordfreq: pip install wordfreq, or name a file"
        ) from error
    try:
        found = get_frequency_dict(language)
    except LookupError as error:
        raise CountsError(f"word counts 'wordfreq:{language}': that package has no such language ({error})") from error
    return _frequent(list(found), np.array(list(found.values())))


def _frequent(words: list[str], shares: np.ndarray) -> pa.Table:
    """Build the table of words with a share of at least RAREST, sorted by word."""
    kept = shares >= RAREST
    table = pa.table({"word": pa.array(words, pa.string()), "p": pa.array(shares, pa.float64())})
    return table.filter(pa.array(kept)).sort_by("word")
