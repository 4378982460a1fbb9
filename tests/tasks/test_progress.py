"""What a run says of its steps is true: a step that is said to be done is not done again."""

from pathlib import Path

from pairmill.flows.run_start import session
from pairmill.flows.settings import Compute, load_recipe
from pairmill.tasks.collect.ingest import ingest
from tests.worlds.shared import new_lake


def test_a_step_is_said_to_be_done_when_it_is_committed(tmp_path: Path):
    source = tmp_path / "source"
    source.mkdir()
    for n in range(40):
        (source / f"{n}.html").write_text(f"<p>Page number {n} has a sentence.</p>")
    seen: list[tuple[int, int, int]] = []
    compute = Compute.model_validate({"workers": 2})
    with session(load_recipe("demo", {}), [str(source)], str(new_lake(tmp_path / "lake")), compute) as held:

        def progress(step: str, done: int, total: int) -> None:
            (n,) = held.lake.query("SELECT count(*) FROM documents")[0]
            seen.append((done, total, n))

        held.progress = progress
        ingest(held)
    done, total, documents = seen[-1]
    assert (done, documents) == (total, 40)
    assert [each for each, _, _ in seen] == list(range(total + 1))
