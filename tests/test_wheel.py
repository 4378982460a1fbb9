"""The wheel is whole: installed into an empty environment, it runs from any folder, whatever modules lie there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
UV = str(Path(sys.executable).with_name("uv"))
OWN = ("tasks", "ops", "flows", "catalog", "infra")


def run(*command: str, folder: Path = ROOT) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def folder_of_a_user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with modules of the user's own, named as the top folders of this repository. Each refuses to load."""
    folder = tmp_path_factory.mktemp("user")
    for name in OWN:
        (folder / f"{name}.py").write_text("raise RuntimeError('a module of the user was imported')\n")
    return folder


def test_a_users_own_modules_are_not_imported(folder_of_a_user: Path):
    told = run(sys.executable, "-m", "pairmill", "--help", folder=folder_of_a_user)
    assert "pairmill COMMAND --help" in told
    code = "import json, pairmill.tasks.publish, sys; print(json.dumps(sorted(sys.modules)))"
    assert not set(OWN) & set(json.loads(run(sys.executable, "-c", code, folder=folder_of_a_user)))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_wheel_curates_the_demo_from_a_users_folder(folder_of_a_user: Path, tmp_path: Path):
    run(UV, "build", "--wheel", "--out-dir", str(tmp_path / "dist"), str(ROOT))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    run(UV, "venv", "--python", sys.executable, str(tmp_path / "env"))
    python = str(tmp_path / "env" / "bin" / "python")
    run(UV, "pip", "install", "--python", python, "--no-deps", str(wheel))
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    # A path that a .pth file adds is no site folder: the checkout's own .pth file in it is not read.
    (site / "locked.pth").write_text(f"{ROOT / '.venv' / site.relative_to(tmp_path / 'env')}\n")
    where = run(python, "-c", "import pairmill.flows.run.settings as s; print(s.ROOT)", folder=folder_of_a_user)
    assert where.strip() == str(site / "pairmill")
    told = run(python, "-m", "pairmill", "demo", folder=folder_of_a_user)
    assert "demo@1" in told and "(published)" in told
    again = run(python, "-m", "pairmill", "demo", folder=folder_of_a_user)
    assert "unchanged" in again
    status = run(python, "-m", "pairmill", "run", "30m", "--models", "demo", "--source", "pairmill-demo/world/pages",
                 "--lake", "pairmill-demo/lake", "--dry-run",
                 folder=folder_of_a_user)  # fmt: skip
    assert "30m" in status
    code = "from pairmill.flows.with_prefect.served import deployments; print(list(deployments()))"
    assert "curate/30m" in run(python, "-c", code, folder=folder_of_a_user)
