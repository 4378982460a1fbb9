"""What a wave leaves in the lake stands there once."""

from pathlib import Path

from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.generate.waves import _keep_record
from tests.worlds.shared import new_lake


def test_a_step_that_is_tried_again_writes_the_row_of_its_wave_once(tmp_path: Path):
    (tmp_path / "page.html").write_text("<article><p>Some words.</p></article>")
    compute = Compute.model_validate({"workers": 1})
    with session(load_recipe("demo"), [str(tmp_path)], str(new_lake(tmp_path / "lake")), compute) as held:
        held.lake.execute("CREATE TEMP TABLE wave_asked AS SELECT 1 AS n UNION ALL SELECT 2")
        held.lake.execute("CREATE TEMP TABLE cut_capped AS SELECT 1 AS n, '' AS state, false AS past")
        for wave in (1, 1, 2):
            held.waves = wave
            _keep_record(held)
        assert held.lake.query("SELECT wave, asked, passed, kept FROM waves ORDER BY wave") == [
            (1, 2, 1, 1),
            (2, 2, 1, 1),
        ]
