"""Launch nodes of Ray's fake multi-node provider when a file says so: a cloud that takes its time, but no longer."""

import os
import time
from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class GatedNodes(FakeMultiNodeProvider):
    """Ray's autoscaler imports this. Of its settings, ``gate`` is the file that it waits for before each launch, and
    ``address`` the one that says where the cluster is."""

    def create_node_with_resources_and_labels(self, *about: Any) -> None:
        while not os.path.exists(self.provider_config["gate"]):
            time.sleep(0.05)
        with open(self.provider_config["address"]) as file:
            self._gcs_address = file.read().strip()
        super().create_node_with_resources_and_labels(*about)
