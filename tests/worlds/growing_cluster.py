"""A Ray cluster with an autoscaler: a head with CPUs only, and a node type with a GPU that is launched on demand.

`ray.cluster_utils.AutoscalingCluster` does the same, but the file that it is built from is not in Ray's wheel, and it
starts and ends with `ray stop --force`, which ends every Ray on the machine.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID, FAKE_HEAD_NODE_TYPE

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "ray_current_cluster"  # the file with the head's address
AS_HEAD = {
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "PYTHONPATH": str(ROOT),
}


@contextmanager
def growing_cluster(gate: Path) -> Iterator[dict[str, str]]:
    """Start the head, yield the environment (RAY_ADDRESS) for drivers that join it, then end all of its processes.

    No node is launched before the file ``gate`` exists.
    """
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # a socket's path has at most 107 characters
    (folder / "autoscaler.json").write_text(json.dumps(settings(folder / ADDRESS, gate)))
    # A separate token: the one in the home folder is shared by every Ray on this machine.
    (folder / "token").write_text(secrets.token_hex(32))
    known = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    with open(folder / "said", "w") as said:
        head = subprocess.Popen(command(folder), env=known | AS_HEAD, stdout=said, stderr=said)
        try:
            yield known | {"RAY_ADDRESS": wait_for_head(head, folder)}
            assert head.poll() is None, (folder / "said").read_text()[-3000:]
        finally:
            end(head)
            shutil.rmtree(folder, ignore_errors=True)


def settings(address: Path, gate: Path) -> dict:
    """Return the autoscaler's settings: it may launch one node with 2 CPUs and a GPU, logical ones of Ray."""
    provider = {"type": "external", "module": "tests.worlds.gated_nodes.GatedNodes"}
    return {
        "cluster_name": "growing",
        "max_workers": 1,
        "idle_timeout_minutes": 10,
        "provider": provider | {"head_node_id": FAKE_HEAD_NODE_ID, "address": str(address), "gate": str(gate)},
        "head_node_type": FAKE_HEAD_NODE_TYPE,
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "cluster_synced_files": [],
        "available_node_types": {
            FAKE_HEAD_NODE_TYPE: {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
            "gpu": {"resources": {"CPU": 2, "GPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 1},
        },
    }


def command(folder: Path) -> list[str]:
    """Return the command that starts the head."""
    options = {
        "autoscaling-config": folder / "autoscaler.json", "temp-dir": folder, "port": 0,
        "num-cpus": 1, "num-gpus": 0, "include-dashboard": "false",
    }  # fmt: skip
    ray_program = f"{os.path.dirname(sys.executable)}/ray"
    return [ray_program, "start", "--head", "--block", *(f"--{name}={value}" for name, value in options.items())]


def wait_for_head(head: subprocess.Popen, folder: Path) -> str:
    """Wait until the head has written its address; return the address. A head that cannot start ends by itself."""
    while not (folder / ADDRESS).exists() or not (address := (folder / ADDRESS).read_text().strip()):
        assert head.poll() is None, (folder / "said").read_text()[-3000:]
        time.sleep(0.1)
    return address


def end(head: subprocess.Popen) -> None:
    """End the head and all processes that it, its autoscaler and its nodes started, each by its id."""
    if head.poll() is not None:
        return  # the head ended by itself, with its processes
    family = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
