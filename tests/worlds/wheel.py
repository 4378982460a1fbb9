"""Build the wheel, install it into an environment of its own, and curate the demo by it, once a test run."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.worlds.shared import made_once

ROOT = Path(__file__).resolve().parents[2]
UV = str(Path(sys.executable).with_name("uv"))
# The top folders of this repository.
OWN = ("tasks", "ops", "flows", "catalog", "infra")
ASKED = """
import json, pairmill.flows.run.settings as s, pairmill.flows.with_prefect.served as served
print(json.dumps({"root": str(s.ROOT), "recipe": s.load_recipe("30m", {}).name, "served": [*served.deployments()]}))
"""


def told_by_wheel() -> dict:
    """Return what the installed wheel told: ``root``, ``site``, ``recipe``, ``served``, and the output of ``demo``."""
    return json.loads((made_once("wheel", _make) / "told.json").read_text())


def demo_by_wheel() -> Path:
    """Return the folder with the world and the lake that `pairmill demo` of the wheel made."""
    return made_once("wheel", _make) / "user" / "pairmill-demo"


def folder_of_a_user(folder: Path) -> Path:
    """Make a folder with modules of the user's own that are named as OWN and refuse to load."""
    folder.mkdir(parents=True)
    for name in OWN:
        (folder / f"{name}.py").write_text("raise RuntimeError('a module of the user was imported')\n")
    return folder


def run(*command: str, folder: Path = ROOT) -> str:
    """Run a command that must succeed, without what the tests add to the environment; return its output."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def _make(place: Path) -> None:
    user = folder_of_a_user(place / "user")
    left = ROOT / "build" / "lib" / "pairmill" / "module_of_an_earlier_build.py"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("")
    run(UV, "build", "--wheel", "--out-dir", str(place / "dist"), str(ROOT))
    (wheel,) = (place / "dist").glob("*.whl")
    run(UV, "venv", "--python", sys.executable, str(place / "env"))
    python = str(place / "env" / "bin" / "python")
    run(UV, "pip", "install", "--compile-bytecode", "--python", python, "--no-deps", str(wheel))
    (site,) = (place / "env").glob("lib/python*/site-packages")
    # A path that a .pth file adds is no site folder: the checkout's own .pth file in it is not read.
    (site / "locked.pth").write_text(f"{ROOT / '.venv' / site.relative_to(place / 'env')}\n")
    told = json.loads(run(python, "-c", ASKED, folder=user).splitlines()[-1])
    told |= {"site": str(site), "demo": run(str(place / "env" / "bin" / "pairmill"), "demo", folder=user)}
    (place / "told.json").write_text(json.dumps(told))
