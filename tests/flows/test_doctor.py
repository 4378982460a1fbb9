"""`pairmill doctor`: what it finds on this machine, in a lake and of a recipe's models, and the remedies it names."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write.lease import writing
from pairmill.flows.command.cli import main
from pairmill.flows.doctor import examinations
from pairmill.flows.doctor.examinations import hub_token, s3_credentials
from pairmill.flows.machine.finding import Patient
from pairmill.flows.machine.hardware import Driver, ask_driver, available, judge
from tests.worlds.shared import new_lake

IMPORTED = dict(examinations.IMPORTED)
H100 = Driver((13, 0), ("NVIDIA H100 (80 GiB)", "NVIDIA H100 (80 GiB)"))
SECRET = "wJalrXUtnFEMI"


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Hide the user's credentials and server; let `doctor` import one small module only.

    `pairmill doctor` of the documents (tests/test_readme.py) imports all, and must find nothing to mend.
    """
    monkeypatch.setattr(examinations, "IMPORTED", {"": ("json",)})
    for name in [name for name in os.environ if name.startswith(("AWS_", "HF_"))]:
        monkeypatch.delenv(name)
    with temporary_settings({PREFECT_HOME: tmp_path / "prefect"}, restore_defaults={PREFECT_API_URL}):
        yield


def found(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, list[dict[str, str]]]:
    """Run a doctor; return its findings by the name of their check."""
    assert main(["doctor", *arguments, "--format", "json"]) == status
    rows: dict[str, list[dict[str, str]]] = {}
    for row in json.loads(capsys.readouterr().out):
        rows.setdefault(row["check"], []).append(row)
    return rows


@contextmanager
def server(path: str, answer: object) -> Iterator[str]:
    """Yield the address of a server that answers one path with JSON, and any other with 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == path else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_the_environment_of_the_tests_is_in_order_and_each_finding_is_one_line(capsys, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("HF_TOKEN", f"hf_{SECRET}")
    assert main(["doctor", "--lake", str(tmp_path / "lake")]) == 0
    out = capsys.readouterr().out
    *lines, last = out.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "warn"} and " 0 to mend" in last
    checks = [line.split()[1] for line in lines]
    assert list(dict.fromkeys(checks)) == ["python", "packages", "extras", "imports", "devices", "memory", "disk",
                                           "credentials", "lake", "prefect", "models"]  # fmt: skip
    assert sys.executable in lines[0] and version("pairmill") in lines[1] and "AWS_ACCESS_KEY_ID" in out
    assert SECRET not in out and "AKIAIOSFODNN7" not in out


def test_packages_and_extras_are_compared_with_what_the_distribution_declares(tmp_path: Path, monkeypatch):
    folder = tmp_path / "toyshop-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: toyshop\nVersion: 1.0\nRequires-Python: >=3.99\nProvides-Extra: train\n"
        "Requires-Dist: pyyaml>=1\nRequires-Dist: psutil<0.1\nRequires-Dist: numpy<0.1; sys_platform == 'win32'\n"
        "Requires-Dist: no-such-locomotive; extra == 'train'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(examinations, "NAME", "toyshop")
    python, base, extra = (
        next(check(Patient("lake")))
        for check in (examinations.python_version, examinations.packages, examinations.extras)
    )
    assert python.state == "fail" and "needs >=3.99" in python.text
    assert base.state == "fail" and base.text == f"psutil {version('psutil')} is installed, <0.1 is needed"
    assert base.remedy == "pip install 'psutil<0.1'"
    assert extra.state == "warn" and "no-such-locomotive is not installed" in extra.text
    assert extra.remedy == "pip install 'toyshop[train]'"


@pytest.mark.slow
def test_a_torchvision_that_does_not_fit_torch_is_one_line_with_the_remedy(tmp_path: Path, monkeypatch):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text("raise RuntimeError('operator torchvision::nms is missing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(examinations, "IMPORTED", {"": IMPORTED[""]})
    finding = next(examinations.imports(Patient("lake")))
    assert finding.state == "fail"
    assert finding.text.startswith("torchvision cannot be imported (RuntimeError: operator torchvision::nms is missing")
    assert f"torch {version('torch')}, torchvision {version('torchvision')}" in finding.text
    assert finding.remedy.startswith("install them from one index: pip install --force-reinstall 'torch<")


@pytest.mark.parametrize(
    ("driver", "torch", "built_for", "visible", "state", "text"),
    [
        (H100, "2.13.0+cu130", "13.0", None, "ok", "2 × NVIDIA H100 (80 GiB), CUDA 13.0"),
        (H100, "2.13.0+cpu", "", None, "warn", "is built without CUDA: models run on 4 CPUs: install torch with CUDA"),
        (
            Driver((12, 4), ("T4",)),
            "2.13.0+cu130",
            "13.0",
            None,
            "warn",
            "knows CUDA 12.4 and torch 2.13.0+cu130 needs",
        ),
        (Driver((13, 0), reason="no GPU is visible"), "2.13.0", "13.0", "", "warn", "unset CUDA_VISIBLE_DEVICES"),
        (Driver((13, 0), reason="the NVIDIA driver fails: 803"), "2.13.0", "13.0", None, "warn", "restart the machine"),
        (ask_driver("libno-such.so.1"), "2.13.0", "13.0", None, "ok", "no NVIDIA driver is installed; models run on 4"),
    ],
)
def test_why_torch_uses_no_gpu_is_told(driver, torch: str, built_for: str, visible, state: str, text: str):
    finding = judge(driver, torch, built_for, visible, 4)
    assert finding.state == state and text in f"{finding.text}: {finding.remedy}"


def test_memory_is_limited_by_the_container(tmp_path: Path):
    unlimited = available(tmp_path)
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert available(tmp_path) == 2_000_000 < unlimited
    (tmp_path / "memory.max").write_text("max\n")
    assert available(tmp_path) > 2_000_000


def test_credentials_are_named_and_a_lake_on_s3_needs_them(tmp_path: Path):
    half = s3_credentials({"AWS_ACCESS_KEY_ID": SECRET}, tmp_path, needed=False)
    assert half.state == "warn" and "AWS_SECRET_ACCESS_KEY is not" in half.text and SECRET not in half.text
    assert s3_credentials({}, tmp_path, needed=True).state == "fail"
    assert s3_credentials({"AWS_PROFILE": "me"}, tmp_path, needed=True).state == "fail", "DuckDB reads variables alone"
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(SECRET)
    assert str(tmp_path) in s3_credentials({}, tmp_path, needed=False).text
    assert "HF_TOKEN is set" in hub_token({"HF_TOKEN": SECRET}).text


def test_a_lake_tells_its_version_its_seal_and_its_writer(capsys, tmp_path: Path):
    place = str(tmp_path / "lake")
    new_lake(place)
    told = " ".join(row["finding"] for row in found(capsys, "--lake", place)["lake"])
    assert "the newest" in told and "sealed" in told and "nobody writes" in told
    with create_or_open(place) as lake, writing(lake, "0" * 32, "curate 30m"):
        told = " ".join(row["finding"] for row in found(capsys, "--lake", place)["lake"])
    assert f":{os.getpid()}, run {'0' * 32}, 'curate 30m'" in told and "nobody" not in told
    catalog = tmp_path / "lake" / "catalog.sqlite"
    catalog.write_bytes(catalog.read_bytes()[:-1] + b"x")
    (row,) = found(capsys, "--lake", place, status=1)["lake"]
    assert row["state"] == "fail" and "is damaged" in row["finding"] and "from a copy" in row["finding"]


def test_a_folder_with_other_things_is_no_place_for_a_lake(capsys, tmp_path: Path):
    (tmp_path / "photo.jpg").write_bytes(b"")
    (row,) = found(capsys, "--lake", str(tmp_path), status=1)["lake"]
    assert row["state"] == "fail" and "holds other things (photo.jpg)" in row["finding"]


def test_the_models_of_a_recipe_are_looked_for_on_this_machine_and_behind_their_servers(capsys, tmp_path, monkeypatch):
    lake = ("--lake", str(tmp_path / "lake"))
    shipped = found(capsys, "demo", *lake)["models"]
    assert len(shipped) >= 5 and all(row["finding"].endswith(": on this machine") for row in shipped)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with server("/v1/models", {"data": [{"id": "Palette"}]}) as url:
        changes = [f"--set=models.captioner=http:Palette@{url}/v1,http://127.0.0.1:9/v1"]
        changes += [
            f"--set=models.fuser=http:Pallete@{url}/v1",
            "--set=models.perplexity=hf:nobody/nothing",
            "--set=models.parser=spacy:no_such_pipeline",
        ]
        models = found(capsys, "demo", *changes, *lake, status=1)["models"]
    told = {row["state"] + " " + row["finding"]: row["remedy"] for row in models}
    assert f"ok captioner, http:Palette: {url}/v1 serves it" in told
    assert f"fail fuser, http:Pallete: {url}/v1 serves Palette instead" in told
    assert any(text.startswith("fail captioner, http:Palette: http://127.0.0.1:9/v1 does not answer") for text in told)
    assert any(text.startswith("fail parser, model 'spacy:no_such_pipeline': no pipeline") for text in told)
    remedy = told["fail perplexity, hf:nobody/nothing: not on this machine, and HF_HUB_OFFLINE is set"]
    assert remedy.startswith("unset HF_HUB_OFFLINE")


def test_a_server_of_another_version_and_one_that_is_gone_are_told(capsys, tmp_path: Path):
    lake = ("--lake", str(tmp_path / "lake"))
    with server("/api/admin/version", "2.20.1") as url:
        with temporary_settings({PREFECT_API_URL: f"{url}/api"}):
            (row,) = found(capsys, *lake)["prefect"]
        assert row["state"] == "warn" and "has version 2.20.1" in row["finding"]
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        (row,) = found(capsys, *lake, status=1)["prefect"]
    assert row["state"] == "fail" and "does not answer (" in row["finding"] and "pairmill up" in row["remedy"]


def test_a_check_that_breaks_is_a_finding_and_the_others_still_run(capsys, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("pairmill.flows.machine.hardware.psutil.virtual_memory", lambda: 1 / 0)
    rows = found(capsys, "--lake", str(tmp_path / "lake"), status=1)
    assert rows["memory"][0]["finding"] == "ZeroDivisionError: division by zero" and rows["prefect"][0]["state"] == "ok"
