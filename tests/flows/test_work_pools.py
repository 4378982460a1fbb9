"""`prefect deploy --all` into pools of containers: what the pool's worker would start is what our image can run."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import prefect
import pytest
from jsonschema import validate
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.workers.base import BaseJobConfiguration

from pairmill.flows.run.settings import ROOT
from pairmill.flows.with_prefect.served import deployments

SHIPPED = Path(prefect.__file__).parent / "server/api/collections_data/views/aggregate-worker-metadata.json"
IMAGE, LAKE = "registry.example/pairmill:cpu", "/etc/pairmill/lake.yaml"


class Rendered(BaseJobConfiguration):
    """Fields of a work pool's base job template that its workers read, of Docker and of Kubernetes."""

    image: str = ""
    job_manifest: dict[str, Any] | None = None


@pytest.mark.slow  # 20 s: a Prefect server
@pytest.mark.parametrize("kind", ["docker", "kubernetes"])
def test_a_pool_of_containers_starts_our_image_with_the_lake_and_no_checkout(
    kind: str, prefect_api: str, tmp_path: Path
):
    template = json.loads(SHIPPED.read_text())[f"prefect-{kind}"][kind]["default_base_job_configuration"]
    (tmp_path / "prefect.yaml").write_text((ROOT / "prefect.yaml").read_text().replace("curate-pool", f"{kind}-pool"))
    given = {"PREFECT_API_URL": prefect_api, "PREFECT_HOME": str(tmp_path / "home")}
    given |= {"PAIRMILL_IMAGE": IMAGE, "PAIRMILL_LAKE": LAKE}
    with SyncPrefectClient(prefect_api) as client:
        client.create_work_pool(WorkPoolCreate(name=f"{kind}-pool", type=kind, base_job_template=template))
        command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
        done = subprocess.run(command, cwd=tmp_path, env=os.environ | given, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        found = client.read_deployment_by_name("curate/30m")
        assert {client.read_deployment_by_name(name).work_pool_name for name in deployments()} == {f"{kind}-pool"}
    assert found.pull_steps == [{"prefect.deployments.steps.set_working_directory": {"directory": "."}}]
    assert found.entrypoint == "pairmill.flows.with_prefect.deployments.curate"
    validate(found.job_variables, template["variables"])
    with temporary_settings({PREFECT_API_URL: prefect_api}):
        job = asyncio.run(Rendered.from_template_and_values(template, found.job_variables))
    assert job.env["PAIRMILL_LAKE"] == LAKE
    if kind == "docker":
        assert job.image == IMAGE
    else:
        (container,) = (job.job_manifest or {})["spec"]["template"]["spec"]["containers"]
        assert container["image"] == IMAGE and {"PAIRMILL_LAKE", LAKE} <= set(str(container["env"]).split("'"))
