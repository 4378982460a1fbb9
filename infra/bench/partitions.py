"""Benchmark how a commit's look-up of known partitions grows with the number of partitions of a lake.

Run as ``python -m infra.bench.partitions``: lakes of 32,000 and 1.9 million partitions. Measured is the look-up of 200
new partitions by a lease holder that has loaded the known ids once. Peers are a join over all partitions and a
comparison with the list.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

from infra.bench.measure import Row, exponent, finish, interleaved, parser, wall
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.write.commit import Committed, known_partitions

SIZES = (32_000, 1_900_000)
AT_ONCE = 200


def filled(lake: Lake, n: int) -> None:
    """Insert ``n`` rows of `partitions`, 100,000 at a time."""
    for at in range(0, n, 100_000):
        size = min(100_000, n - at)
        names = [text_id(str(number)) for number in range(at, at + size)]
        rows = {"table": ["images"] * size, "partition_id": names, "shard": names, "scorer": [""] * size}
        rows |= {"rows": [1] * size, "bytes": [1] * size, "seconds": [0.1] * size, "run_id": ["bench"] * size}
        rows |= {"commit": [1] * size, "path": [f"main/images/bench/{name}.parquet" for name in names]}
        lake.insert("partitions", pa.table(rows))


def compared(lake: Lake, ids: list[str]) -> None:
    """Look up ``ids`` by comparing every row of ``partitions`` with the list, as a peer of the indexed look-up."""
    lake.query('SELECT "table", partition_id FROM partitions WHERE list_contains(?, partition_id)', (ids,))


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__).parse_args()
    wanted = [text_id("new", str(n)) for n in range(AT_ONCE - 1)] + [text_id("7")]
    rows, seconds = [], []
    for n in SIZES:
        with tempfile.TemporaryDirectory() as folder, create_or_open(Path(folder) / "lake") as lake:
            filled(lake, n)
            assert known_partitions(lake, wanted) == {("images", text_id("7"))}
            held = Committed(lake)
            assert held.may_hold(wanted) and not held.may_hold(wanted[:-1])
            work = {
                "ours": lambda held=held: held.may_hold(wanted[:-1]),
                "join": lambda lake=lake: known_partitions(lake, wanted),
                "list": lambda lake=lake: compared(lake, wanted),
            }
            found = interleaved(work, options.rounds)
        ours = wall(found["ours"])
        seconds.append(ours)
        what = f"look-up of {AT_ONCE} partitions among {n:,}"
        for name, told in (("list", "compared with a list"), ("join", "a join over all")):
            peer = wall(found[name])
            rows.append(Row(what, "wall s", ours, peer, told, peer / ours))
    grown = exponent(list(SIZES), seconds)
    rows.append(Row("exponent of its growth", "", grown, target="flat: < 0.2", met=grown < 0.2))
    finish("partitions", rows, options)


if __name__ == "__main__":
    main()
