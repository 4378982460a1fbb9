"""The wheel is whole: installed into an empty environment, it runs from any folder, whatever modules lie there."""

import json
import sys
from pathlib import Path

import pytest

from tests.worlds.wheel import OWN, folder_of_a_user, run, told_by_wheel


def test_a_users_own_modules_are_not_imported(tmp_path: Path):
    folder = folder_of_a_user(tmp_path / "user")
    told = run(sys.executable, "-m", "pairmill", "--help", folder=folder)
    assert "pairmill COMMAND --help" in told
    code = "import json, pairmill.tasks.publish, sys; print(json.dumps(sorted(sys.modules)))"
    assert not set(OWN) & set(json.loads(run(sys.executable, "-c", code, folder=folder)))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_wheel_curates_the_demo_from_a_users_folder():
    told = told_by_wheel()
    assert not Path(told["site"], "pairmill", "module_of_an_earlier_build.py").exists()
    assert told["root"] == f"{told['site']}/pairmill"
    assert told["recipe"] == "30m" and "curate/30m" in told["served"]
    assert "demo@1" in told["demo"] and "(published)" in told["demo"]
