"""Two profiles of hypothesis, and what the processes of a test run share.

No test is a matter of time: by default hypothesis fails an example that takes 0.2 s, which a busy machine makes of any.
"""

import pytest
from hypothesis import settings

from tests.examples import FULL
from tests.worlds import shared

# `make test-full` tries all properties again, by --hypothesis-profile full; no tier of CI does.
settings.register_profile("quick", deadline=None, max_examples=20)
settings.register_profile("full", deadline=None, max_examples=FULL)
settings.load_profile("quick")


@pytest.fixture(scope="session", autouse=True)
def _shared_place(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> None:
    """Beside the temporary folders of all of the run's processes; of one alone, inside its own."""
    own = tmp_path_factory.getbasetemp()
    shared.PLACE = (own if worker_id == "master" else own.parent) / "shared"
    shared.PLACE.mkdir(exist_ok=True)
