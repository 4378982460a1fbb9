"""Trials make their worlds in folders of their own, and leave the place of the shared ones to other tests."""

import pytest

from tests.worlds import shared


@pytest.fixture(autouse=True)
def place_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back the folder of shared worlds, which `infra.endure.trial_world` sets."""
    monkeypatch.setattr(shared, "PLACE", shared.PLACE)
