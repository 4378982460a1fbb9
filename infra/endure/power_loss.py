"""Cut the power at many moments of a run: build the files that may be left, and open each lake.

A clone opens to a state that the run had committed, or one line names what is lost. Every ``--rerun``-th is also
checked, repaired if that finds damage, and run to its end, which must give the undisturbed run's dataset. From the
repository's root: ``python -m infra.endure.power_loss [--prefixes 500] [--seed 1] [--documents 6]``.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from infra.endure.after_reboot import reboot
from infra.endure.crash_clone import DISKS, crashed
from infra.endure.lake_states import CommittedStates, newest_state
from infra.endure.recorded_writes import Recording, record
from infra.endure.trial_world import ROOT, TrialWorld, digests
from pairmill.catalog.terms.error import PairmillError

RESULT = ROOT / "infra" / "endure" / "results" / "power_loss.json"


@dataclass(frozen=True)
class PowerCut:
    """A moment (changes before it) and a kind of disk."""

    after: int
    disk: str

    def __str__(self) -> str:
        return f"{self.disk} after {self.after}"


class PowerLoss:
    """A recorded run in ``folder``, whose power is cut at any moment."""

    def __init__(self, folder: Path, documents: int, seed: int) -> None:
        self.world, self.folder, self.seed = TrialWorld(folder / "world", documents), folder, seed
        self.lake = folder / "recorded" / "lake"
        self.lake.parent.mkdir()
        trace = folder / "trace"
        self.recording: Recording = record(self.world.command(self.lake), self.lake.parent, trace, ROOT)
        trace.unlink()
        self.states, self.expected = CommittedStates(self.lake), digests(self.lake)

    def cuts(self, n: int) -> list[PowerCut]:
        """Choose moments: half beside a sync or a change of names, where order matters; the rest anywhere."""
        chance, changes = random.Random(self.seed), self.recording.changes
        edges = [m for m, change in enumerate(changes) if change.kind in ("sync", "names")]
        ends = [
            chance.choice(edges) + chance.randint(0, 1) if m % 2 else chance.randrange(len(changes)) for m in range(n)
        ]
        return [PowerCut(end, DISKS[m % len(DISKS)]) for m, end in enumerate(sorted(ends))]

    def outcome(self, cut: PowerCut, is_rerun: bool) -> str:
        """Return what a user meets after the power cut; 'silent …' if that is wrong and nothing says so."""
        place = self.folder / "clone"
        shutil.rmtree(place, ignore_errors=True)
        clone = crashed(self.recording, cut.after, cut.disk, random.Random(f"{self.seed} {cut}"))
        clone.write(place, self.recording)
        said = self._opened(place / "lake")
        if is_rerun and not said.startswith("silent"):
            said += self._rerun(place / "lake")
        return said

    def _opened(self, lake: Path) -> str:
        try:
            snapshot, state = newest_state(lake)
        except PairmillError as error:
            line = str(error)
            told = "\n" not in line and (str(lake) in line)
            return f"{'told' if told else 'silent, unclear'}: {_general(line, lake)}"
        except Exception as error:
            return f"silent, {type(error).__name__}: {_general(str(error), lake)}"
        right = self.states.at(snapshot)
        if state == right:
            return "whole"
        return f"silent, other rows: {[table for table in state if state[table] != right.get(table)]}"

    def _rerun(self, lake: Path) -> str:
        """Run to the end, after a repair if the run asks for one; return what happened."""
        how, done = "", self._command(*self.world.command(lake)[3:])
        if done.returncode and lake.exists():
            how, line = ", repaired", done.stderr.strip().splitlines()[-1:]
            self._command("check", "--deep", "--repair", "--lake", str(lake))
            done = self._command(*self.world.command(lake)[3:])
            if done.returncode:
                return f", not gone on with: {_general(' '.join(line), lake)}"
        return f"{how}, then the same dataset" if digests(lake) == self.expected else "; silent, another dataset"

    def _command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "infra.endure.after_reboot", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def _general(line: str, lake: Path) -> str:
    """Return a message without what differs from clone to clone."""
    return line.replace(str(lake), "LAKE").partition(" (")[0][:160]


def trial(
    folder: Path, prefixes: int, documents: int, seed: int, rerun: int, minutes: float = 60
) -> Counter[tuple[str, str]]:
    """Return how often each (disk, outcome) was met, within ``minutes``."""
    end = time.monotonic() + 60 * minutes
    reboot()
    lost = PowerLoss(folder, documents, seed)
    found: Counter[tuple[str, str]] = Counter()
    cuts = lost.cuts(prefixes)
    random.Random(seed).shuffle(cuts)  # those that the time suffices for are of the whole run
    for n, cut in enumerate(cuts):
        if time.monotonic() > end:
            print(f"the time is up after {n} of {len(cuts)}", flush=True)
            break
        said = lost.outcome(cut, bool(rerun) and n % rerun == 0)
        found[cut.disk, said] += 1
        if "silent" in said or "not gone on" in said:
            print(f"{cut}: {said}", flush=True)
    return found


def main() -> int:
    """Cut, print the table and store it; return 1 if anything was silent."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("prefixes", 500), ("documents", 6), ("seed", 1), ("rerun", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--minutes", type=float, default=30)
    options, began = parser.parse_args(), time.monotonic()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found = trial(Path(folder), options.prefixes, options.documents, options.seed, options.rerun, options.minutes)
    rows = [{"disk": disk, "outcome": said, "times": n} for (disk, said), n in sorted(found.items())]
    for row in rows:
        print(f"{row['times']:5} {row['disk']:8} {row['outcome']}")
    silent = sum(n for (_, said), n in found.items() if "silent" in said)
    print(f"{found.total()} power cuts, {silent} silent, {time.monotonic() - began:.0f} s")
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"seed": options.seed, "silent": silent, "rows": rows}, indent=1) + "\n")
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
