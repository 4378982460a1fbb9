"""The files that start a cluster are valid by their published schemas, and agree with the lock file.

There is no Docker and no Kubernetes here, so the files are not run.
"""

import json
import re
import shlex
import subprocess
import sys
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from pairmill.flows.command.commands import parser

ROOT = Path(__file__).resolve().parents[1]
COMPOSE, KUBERAY = ROOT / "infra" / "compose", ROOT / "infra" / "kuberay"


def loaded(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def compose_faults(content: dict[str, Any]) -> list[str]:
    """Return what the Compose specification finds wrong."""
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    validator = jsonschema.Draft202012Validator(json.loads(schema.read_text()))
    return [fault.message for fault in validator.iter_errors(content)]


def ray_cluster_faults(content: dict[str, Any]) -> list[str]:
    """Return what KubeRay's schema finds wrong; templates of pods are not part of it."""
    schema = json.loads((KUBERAY / "raycluster-v1.schema.json").read_text())
    return [fault.message for fault in jsonschema.Draft7Validator(schema).iter_errors(content)]


def pods(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **group["template"]} for group in groups]


def test_the_dockerfile_has_no_finding_of_hadolint():
    linter = Path(sys.executable).with_name("hadolint")
    found = subprocess.run([linter, COMPOSE / "Dockerfile"], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize("name", ["compose.yaml", "gpus.yaml"])
def test_compose_files_follow_the_compose_specification(name: str):
    content = loaded(COMPOSE / name)
    assert compose_faults(content) == []
    broken = deepcopy(content)
    next(iter(broken["services"].values()))["imgae"] = "x"
    assert compose_faults(broken)


def test_the_ray_cluster_follows_the_schemas_of_kuberay_and_kubernetes():
    cluster = loaded(KUBERAY / "raycluster.yaml")
    assert ray_cluster_faults(cluster) == []
    for pod in pods(cluster):
        kubernetes_validate.validate(pod, "1.34", strict=True)
    broken = deepcopy(cluster)
    broken["spec"]["autoscalerOptions"]["verison"] = "v2"
    assert ray_cluster_faults(broken)
    broken["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["imgae"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pods(broken)[0], "1.34", strict=True)


def test_the_cluster_has_the_locked_ray_and_the_autoscaler_that_keeps_nodes():
    locked = dict(re.findall(r"(?m)^([\w.-]+)==([\w.]+)", (ROOT / "infra" / "requirements.lock").read_text()))
    spec = loaded(KUBERAY / "raycluster.yaml")["spec"]
    assert (spec["rayVersion"], spec["autoscalerOptions"]["version"]) == (locked["ray"], "v2")


def test_no_port_is_published_beyond_this_machine_and_every_foreign_image_has_a_version():
    services = loaded(COMPOSE / "compose.yaml")["services"]
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published and all(port.startswith("127.0.0.1:") for port in published)
    images = {service["image"] for service in services.values() if "build" not in service}
    assert images and all(re.fullmatch(r"[\w./-]+:\d[\w.-]*", image) for image in images)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray Serve, which Ray's commands import
def test_the_nodes_of_ray_find_their_head_and_the_documented_runs_reach_it():
    from ray.scripts.scripts import start

    services = loaded(COMPOSE / "compose.yaml")["services"]

    def options(command: list[str]) -> dict[str, Any]:
        assert command[:2] == ["ray", "start"]
        return start.make_context("start", [re.sub(r"\$\{\w+:\?\}", "2", word) for word in command[2:]]).params

    head, node = (options(services[name]["command"]) for name in ("ray-head", "ray-worker"))
    joined = options(services["worker"]["command"][0].partition(" && ")[0].split())
    assert head["head"] and head["num_cpus"] == joined["num_cpus"] == 0 and node["num_cpus"] == 2
    assert head["block"] and node["block"]  # else the container ends, and Ray with it
    assert node["address"] == joined["address"] == f"ray-head:{head['port']}"
    mounted = services["worker"]["volumes"][0].split(":")[1]
    for page in ("infra/compose/compose.yaml", "infra/docs/scale.md"):
        (line,) = re.findall(r"exec worker pairmill (run .*)", (ROOT / page).read_text())
        run = parser().parse_args(shlex.split(line))
        assert (run.lake, run.ray, run.source) == (mounted, node["address"], ["s3://sources/pages"])


def test_the_image_has_rays_dashboard_at_the_locked_version():
    locked = (ROOT / "infra/requirements.lock").read_text()
    assert "cluster]'" in (COMPOSE / "Dockerfile").read_text() and re.search(r"(?m)^aiohttp-cors==", locked)


def test_the_compose_files_hold_no_password_and_name_files_that_exist():
    text = (COMPOSE / "compose.yaml").read_text()
    assert not re.search(r"(?i)(password|secret\w*key): (?!\$\{)", text)
    content = loaded(COMPOSE / "compose.yaml")
    mounted = [volume.partition(":")[0] for each in content["services"].values() for volume in each.get("volumes", [])]
    assert all((COMPOSE / path).is_file() for path in mounted if path.startswith("./"))
    wanted = set(re.findall(r"\$\{(\w+)", text))
    assert wanted == set(re.findall(r"(?m)^(\w+)=", (COMPOSE / "example.env").read_text()))
