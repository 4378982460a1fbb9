"""Run every bench, one after another, then write their table: ``python -m infra.bench.run_all [--photos FOLDER]``.

``make bench`` does this, ``make bench PHOTOS=FOLDER`` with photographs instead of generated pictures. It takes hours.
An interrupted run resumes: benches with a result of this commit on this CPU are skipped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from infra.bench import measure, table

PICTURES = ("decode", "image_pass", "ingest", "fetch")  # benches that read pictures


def done(name: str, words: list[str]) -> bool:
    """Return whether a result exists for this commit without changes, this CPU and this command."""
    try:
        result = json.loads((measure.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    made = (result.get("commit"), result["machine"]["cpu"], result["command"])
    return made == (measure.commit() or "unknown", measure.machine()["cpu"], measure.command(name, words))


def main() -> None:
    """Run the benches, write the table, and exit with an error if any bench failed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--photos", help="folder of photographs")
    photos = options.parse_args().photos
    failed = []
    for name in table.NAMES:
        started = time.monotonic()
        words = ["--photos", photos] if photos and name in PICTURES else []
        if done(name, words):
            print(f"--- {name}: of this commit already", flush=True)
            continue
        print(f"--- {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"infra.bench.{name}", *words]).returncode:
            failed.append(name)
        print(f"--- {name}: {(time.monotonic() - started) / 60:.1f} min", flush=True)
    table.main()
    print(table.table())
    if failed:
        sys.exit(f"failed, so their rows are those of an older run or missing: {', '.join(failed)}")


if __name__ == "__main__":
    main()
