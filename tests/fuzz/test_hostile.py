"""Check that a worker stays within 1.2 GB for any input, and that unreadable input becomes a row with a reason."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.run.pool import fork_server, pool
from tests.fuzz import hostile
from tests.worlds.shared import new_lake

MOST_MB = 1200
# One input for each way in which a small input asks for much memory; `make test-full` has all.
KINDS = [
    hostile.page_of_large_files,
    hostile.page_of_one_file_many_times,
    hostile.page_of_elements,
    hostile.table_of_one_text,
    hostile.lines_of_lists,
    hostile.fields_of_one_line,
    hostile.picture_of_bits,
    hostile.picture_progressive,
]


def within_bounds(names: list[str]) -> None:
    """Measure these inputs in a separate process; check their peaks, reasons and rows."""
    command = [sys.executable, "-m", "tests.fuzz.hostile", *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [each["name"] for each in told] == names, done.stderr[-2000:]
    for each in told:
        peaks = {name: mb for name, mb in each.items() if name.endswith("_mb")}
        assert max(peaks.values()) <= MOST_MB, each
        assert set(each["reasons"]) - {"decoded"} == hostile.HOSTILE[hostile.NAMES[each["name"]]], each
        assert each["rows"]["documents"] >= 1, each  # the good page


@pytest.mark.slow
def test_small_inputs_that_ask_for_much_memory_get_little():
    within_bounds([make.__name__ for make in KINDS])


@pytest.mark.full
@pytest.mark.timeout(900)
def test_no_input_of_the_corpus_takes_a_worker_beyond_its_memory():
    within_bounds([name for name in hostile.NAMES if hostile.NAMES[name] not in KINDS])


def test_a_run_over_hostile_inputs_ends_and_says_of_each_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # A worker of its own, with the imports of a run alone: others' would count in its peak.
    monkeypatch.setattr(pool, "cached_processes", {})
    monkeypatch.setattr(fork_server, "is_running", lambda: False)
    source = tmp_path / "source"
    for make in (hostile.page_of_large_files, hostile.page_of_elements, hostile.lines_of_lists):
        (source / make.__name__).mkdir(parents=True)
        make(source / make.__name__)
    (source / "good.html").write_text("<p>A good page stands beside them.</p>")
    compute = Compute.model_validate({"workers": 1})
    with session(load_recipe("demo", {}), [str(source)], str(new_lake(tmp_path / "lake")), compute) as held:
        assert ingest(held) >= 1
        told = held.lake.query("SELECT reason, count(*) FROM quarantine GROUP BY ALL")
        assert told == [("too_large", 14)]  # twelve files, a page, a line
        assert held.lake.query("SELECT count(*) FROM documents") == [(3,)]  # one page of files, one line, the good page
        assert ingest(held) == 0
    worker = pool.apart()  # it lists and ingests
    status = Path(f"/proc/{worker.pid}/status").read_text().splitlines()
    worker.close()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    assert peak * 1024 / hostile.MB <= MOST_MB
