"""Curate on a Ray cluster of two nodes: ``ray_run LAKE PAGES NOTE KEY=VALUE …``; NOTE gets the second raylet's pid."""

from __future__ import annotations

import sys
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from tests.worlds.line import curate


def main(lake: str, pages: str, note: str, *settings: str) -> None:
    """Start the cluster, write the note, and run to the end."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    second = cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    Path(note).write_text(str(second.all_processes["raylet"][0].process.pid))
    given = dict(setting.split("=", 1) for setting in settings)
    curate(lake, pages, settings=given, ray_address="auto", small_rounds="ray")
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
