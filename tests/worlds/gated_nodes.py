"""Ray's fake multi-node provider with launches that wait for a file: a cloud with a controlled delay."""

import os
import time
from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class GatedNodes(FakeMultiNodeProvider):
    """Node provider that Ray's autoscaler imports.

    Settings: ``gate`` is the file that each launch waits for; ``address`` is the file with the cluster's address.
    """

    def create_node_with_resources_and_labels(self, *about: Any) -> None:
        """Wait for the gate, then launch a node."""
        while not os.path.exists(self.provider_config["gate"]):
            time.sleep(0.05)
        with open(self.provider_config["address"]) as file:
            self._gcs_address = file.read().strip()
        super().create_node_with_resources_and_labels(*about)
