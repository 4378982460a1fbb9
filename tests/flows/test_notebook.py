"""The example notebook runs in a real kernel, where lakes, datasets and runs draw themselves."""

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[2] / "infra/docs/notebook.ipynb"
BAR = """
from pairmill.flows.python_run import show_progress
from pairmill.tasks.run.place.progress import Progress
show = show_progress()
show(Progress("ingest", 0, 8, "files", 0, 2))
show(Progress("ingest", 8, 8, "files", 2, 2))
"""


@pytest.mark.slow  # 9 CPU s
@pytest.mark.timeout(600)
def test_the_notebook_runs_and_shows_versions_pictures_tables_and_progress(curated: Path, tmp_path: Path):
    shutil.copytree(curated, tmp_path / "pairmill-demo/lake")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(BAR))
    resources = {"metadata": {"path": str(tmp_path)}}
    done = NotebookClient(notebook, timeout=500, kernel_name="python3", resources=resources).execute()
    shown = [
        output["data"].get("text/html", "")
        for cell in done.cells
        for output in cell.get("outputs", [])
        if output["output_type"] in ("execute_result", "display_data")
    ]
    assert any("demo@1" in html and "published" in html for html in shown)
    assert any(html.count("data:image/webp;base64,") == 5 and "<b>text1</b>" in html for html in shown)
    assert any("<th>similarity1</th>" in html for html in shown)  # pandas
    assert '<progress max="8" value="8"></progress> ingest: 8 files' in shown
