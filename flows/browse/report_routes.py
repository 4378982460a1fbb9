"""Serve the HTML reports of dataset versions, as their runs or `pairmill report` have written them."""

import shlex

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.pages.html_report import is_report_of
from pairmill.flows.pages.renderer import POLICY
from pairmill.flows.run.outcome import report_path


def routes(opened: BrowsedLake) -> APIRouter:
    """Return the routes of reports."""
    router = APIRouter()

    @router.get("/report")
    def report(dataset: str) -> Response:
        """Serve the report of a version; a file that is damaged, or of another lake, is not served."""
        version = opened.dataset(dataset)
        path = report_path(opened.uri, version) if version else None
        if version is None or path is None or not is_report_of(str(path), version):
            made = f"pairmill report {shlex.quote(dataset)} --lake {shlex.quote(opened.uri)}"
            raise PairmillError(f"there is no report of '{dataset}' yet. Make it: {made}")
        policy = f"{POLICY}; frame-ancestors 'none'"
        return FileResponse(path, media_type="text/html", headers={"Content-Security-Policy": policy})

    return router
