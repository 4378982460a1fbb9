"""Every bench, one after another, then their table: ``python -m infra.bench.run_all``, or ``make bench``."""

from __future__ import annotations

import subprocess
import sys
import time

from infra.bench import table


def main() -> None:
    failed = []
    for name in table.NAMES:
        started = time.monotonic()
        print(f"--- {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"infra.bench.{name}"]).returncode:
            failed.append(name)
        print(f"--- {name}: {(time.monotonic() - started) / 60:.1f} min", flush=True)
    table.main()
    print(table.table())
    if failed:
        sys.exit(f"failed, so their rows are those of an older run or missing: {', '.join(failed)}")


if __name__ == "__main__":
    main()
