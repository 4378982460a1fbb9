"""The flows on a lake, each run once at a real Prefect server: what they say, and how their runs are named."""

from pathlib import Path
from typing import Any

import pytest

from tests.worlds.flow_runs import ended
from tests.worlds.line import rows
from tests.worlds.shared import copied

HERE = "pairmill.flows.with_prefect"


@pytest.mark.slow  # 60 s: a Prefect server, and a process that runs six flows
@pytest.mark.timeout(600)
def test_each_flow_does_its_work_and_has_a_name_that_says_it_unless_its_user_named_it(
    prefect_api: str, curated_copy: Path, settings: dict[str, str], tmp_path: Path
):
    lake, nowhere = {"lake": str(curated_copy)}, {"lake": str(tmp_path / "nowhere")}
    damaged = copied(curated_copy, tmp_path / "damaged")
    next(damaged.glob("data/**/*.parquet")).unlink()
    recipe: dict[str, Any] = {"recipe": "demo", "overrides": settings}
    compute = {"compute": {"workers": 2}}
    asked = [
        (f"{HERE}.lake_deployments.maintain", nowhere, ""),
        (f"{HERE}.lake_deployments.check", lake, "of mine"),
        (f"{HERE}.lake_deployments.export", lake | {"dataset": "demo", "to": str(tmp_path / "out")}, "beta4-orionis"),
        (f"{HERE}.deployments.curate", lake | compute | recipe | {"retry": "missing"}, ""),
        (f"{HERE}.deployments.curate", nowhere | {"overrides": {"balance.capp": 3}}, ""),
        (f"{HERE}.lake_deployments.check", {"lake": str(damaged)}, ""),
    ]
    maintained, checked, exported, retried, mistaken, found = ended(prefect_api, tmp_path / "home", asked)
    assert maintained.name.startswith("maintain nowhere ") and maintained.state == "Skipped"
    assert checked.name == "of mine" and checked.message.endswith("all whole"), checked
    assert exported.name == "export demo@1" and (tmp_path / "out" / ".manifest.json").is_file(), exported
    assert retried.name == "demo@1 unchanged" and retried.state == "Completed", retried
    assert retried.message.startswith("demo@1: "), retried
    assert mistaken.name == f"demo {mistaken.id[:8]}" and mistaken.state == "Failed", mistaken
    assert rows(curated_copy, "SELECT count(*) FROM exports") == [(1,)]
    assert found.name.startswith("check damaged ") and found.state == "Failed" and "1 gone" in found.message, found
