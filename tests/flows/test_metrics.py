"""A run serves metrics to Prometheus when asked; the dashboard's queries name metrics that exist."""

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.curate import curate_steps
from pairmill.flows.run.metrics import BusyGpus
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from tests.worlds.elsewhere import free_port
from tests.worlds.line import rows
from tests.worlds.shared import new_lake

DASHBOARD = Path(__file__).resolve().parents[2] / "infra/grafana/pairmill.json"
Sample = tuple[str, tuple[tuple[str, str], ...]]


def scraped(port: int) -> tuple[dict[Sample, float], set[str]]:
    """Return the samples that the run serves, and the names of its metrics, with and without samples."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    families = list(text_string_to_metric_families(text))
    values = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
    declared = {
        name for kind in ("counter", "gauge", "histogram") for name in re.findall(rf"# TYPE (\S+) {kind}", text)
    }
    return values, declared | {name for name, _ in values}


def total(values: dict[Sample, float], name: str, **labels: str) -> float:
    """Add up the samples of a name that have these labels."""
    return sum(
        value for (sample, held), value in values.items() if sample == name and labels.items() <= dict(held).items()
    )


@pytest.fixture(scope="module")
def served(
    more_pages: Path, settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[Sample, float], set[str]]:
    """The lake of a run with metrics, and what it served after its last step."""
    folder, port = tmp_path_factory.mktemp("metrics"), free_port()
    fake = folder / "nvidia-smi"
    fake.write_text("#!/bin/sh\nprintf '0, 37\\n1, [N/A]\\n'\n")
    fake.chmod(0o755)
    compute = Compute.model_validate({"workers": 2, "metrics": str(port)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=":")
        lake = str(new_lake(folder / "lake"))
        with session(load_recipe("demo", settings), [str(more_pages)], lake, compute) as opened:
            curate_steps(opened, lambda step, held: step(held))
            values, names = scraped(port)
    with pytest.raises(OSError):
        scraped(port)
    return folder / "lake", values, names


@pytest.mark.slow
def test_every_query_of_the_dashboard_names_a_metric_that_a_run_serves(served):
    _, _, names = served
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = {panel["title"]: re.findall(r"\bpairmill_\w+", panel["targets"][0]["expr"]) for panel in panels}
    assert len(asked) == len(panels) and all(asked.values())
    assert {name for each in asked.values() for name in each} <= names


def test_the_metrics_agree_with_the_lake(served):
    lake, values, _ = served
    sums = ("count(*) FROM captions", "count(*) FROM quarantine", "coalesce(sum(tokens), 0) FROM usage")
    captions, faults, tokens = (rows(lake, f"SELECT {each}")[0][0] for each in sums)
    steps = {dict(labels)["stage"] for name, labels in values if name == "pairmill_rows_done_total"}
    [caption] = [step for step in steps if step.startswith("caption ")]
    assert total(values, "pairmill_rows_done_total", stage=caption) == captions > 0
    assert total(values, "pairmill_failures_total") == faults > 0
    assert total(values, "pairmill_tokens_total", kind="answer") == tokens
    assert total(values, "pairmill_rows_pending") == total(values, "pairmill_items_pending") == 0
    assert total(values, "pairmill_partitions_uncommitted") == 0
    commits = rows(lake, 'SELECT count(DISTINCT "commit") FROM partitions')[0][0]
    assert total(values, "pairmill_commit_seconds_count") >= commits / 2
    assert total(values, "pairmill_commit_seconds_sum") > 0
    assert values["pairmill_gpu_busy_ratio", (("gpu", "0"),)] == 0.37


def test_names_have_a_unit_or_count(served):
    _, _, names = served
    units = r"(_seconds(_bucket|_sum|_count)?|_bytes|_ratio|_info|_pending|_uncommitted)(_total)?$|_total$"
    ours = {name for name in names if not name.endswith("_created")}
    assert all(re.search(units, name) and name.startswith("pairmill_") for name in ours), ours


def test_a_driver_that_does_not_answer_leaves_no_sample(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pairmill.flows.run.metrics.ASK_GPUS", ("/no/such/program",))
    assert [family.samples for family in BusyGpus().collect()] == [[]]


def test_a_taken_port_is_refused_in_a_line(pages: Path, settings: dict[str, str], tmp_path: Path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = pytest.raises(PairmillError, match=f"metrics cannot be served at '{port}'.*--metrics")
        recipe = load_recipe("demo", settings)
        with (
            told,
            session(
                recipe, [str(pages)], str(new_lake(tmp_path / "lake")), Compute.model_validate({"metrics": str(port)})
            ),
        ):
            pass


@pytest.mark.parametrize("wrong", ["x", "0", "65536", "host:", "127.0.0.1"])
def test_what_is_no_port_is_refused(wrong: str):
    with pytest.raises(ValueError, match="--metrics"):
        Compute.model_validate({"metrics": wrong})


def test_without_the_option_the_library_is_not_imported():
    code = "import sys, pairmill.flows.run.run_start as r; assert 'prometheus_client' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
