"""Print README.md's table of reported inputs with a further column: what a run of this checkout gives.

``python -m tests.worlds.reports`` takes half a minute.
"""

import tempfile
from pathlib import Path

from tests.worlds import shared
from tests.worlds.reports.questions import QUESTIONS, TABLE, curated, make_lake


def main() -> int:
    """Print the table; return the number of rows whose value is not the right one."""
    with tempfile.TemporaryDirectory() as place:
        shared.PLACE = Path(place)
        make_lake(shared.PLACE / "lake")
        lake = curated(shared.PLACE / "lake")
    now = {each.row: (each.ask(lake), each.right) for each in QUESTIONS}
    wrong = 0
    print("| file | situation | right value | before | now |\n|---|---|---|---|---|")
    for line in TABLE.read_text("utf-8").splitlines():
        row = line.strip("| ").split(" | ")[0]
        if row in now:
            found, right = now[row]
            wrong += found != right
            print(f"{line} {'right' if found == right else f'wrong: `{found!r}`'} |")
    print(f"\n{len(now) - wrong} of {len(now)} rows are right.")
    return wrong


if __name__ == "__main__":
    raise SystemExit(bool(main()))
