"""Serve the pages of a dataset version: report, rules with trials of changed rules, comparison with another version."""

import shlex
import threading
from typing import Annotated
from urllib.parse import urlencode

import yaml
from fastapi import APIRouter, Query
from starlette.responses import FileResponse, Response

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.answer_types import Dataset, Difference
from pairmill.flows.browse.asked import Asked
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.rendering import page, room_page, unpublished_page, waiting_page
from pairmill.flows.pages.html_report import is_report_of
from pairmill.flows.pages.renderer import POLICY
from pairmill.flows.run.outcome import report_path

LONGEST = 4000  # characters of a predicate
SHOWN = 12  # pictures of each cause of a difference


def routes(opened: BrowsedLake) -> APIRouter:
    """Build the router of dataset versions: report, rules, trials of changed rules, changed recipe, comparison."""
    router, lock = APIRouter(), threading.Lock()

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

    @router.get("/rules")
    def rules(dataset: str = "", keep: Annotated[str, Query(max_length=LONGEST)] = "") -> Response:
        """Show a version's rules, on images, then on sentences; before them the new rule ``keep``, if there is one."""
        version = opened.dataset_or_newest(dataset)
        if version is None:
            return unpublished_page(opened, "rules", "No rules yet")
        if opened.gallery(str(version)) is None:
            return waiting_page(opened, "rules", Asked.model_validate({"dataset": str(version)}))
        return room_page(opened, "rules", version, "rules.html.j2", views=opened.lake.rules(str(version)), keep=keep)

    @router.get("/rules/try")
    def try_rule(dataset: str, kind: str, rule: str, keep: str) -> Response:
        """Cut with a changed rule, without publishing, and show the images whose decision changes."""
        change = _change(dataset, kind, rule, keep)
        try:
            with lock:  # one connection, whose temporary tables a trial uses
                found = opened.connection("trials").try_recut(dataset, change)
        except PairmillError as error:
            return page("trial.html.j2", fault=str(error))
        near = opened.lake.beside_rule(dataset, kind, rule, keep) if opened.gallery(dataset, is_scroll=True) else {}
        setting = shlex.quote(f"{kind}s.{rule}.keep={keep}")
        saved = urlencode({"dataset": dataset, "kind": kind, "rule": rule, "keep": keep})
        shown = {"trial": found, "near": near, "kind": kind, "dataset": dataset, "saved": saved, "fault": ""}
        return page("trial.html.j2", setting=f"--set {setting}", **shown)

    @router.get("/rules/recipe")
    def recipe(dataset: str, kind: str, rule: str, keep: str) -> Response:
        """Return the version's recipe with a changed rule as a file to save, with all settings, defaults too."""
        version = opened.lake.dataset(dataset)
        changed = version.recipe.with_(_change(dataset, kind, rule, keep))
        said = f"# {version} with another rule '{rule}'. Run it on the same lake: only what changed is computed.\n"
        text = said + yaml.safe_dump(changed.record(), sort_keys=False, allow_unicode=True, width=110)
        headers = {"Content-Disposition": f'attachment; filename="{version.version.name}.yaml"'}
        return Response(text, media_type="application/yaml", headers=headers)

    @router.get("/compare")
    def compare(dataset: str = "", before: str = "") -> Response:
        """Compare any two versions; by default the newest with the one before it, or with another dataset's."""
        after = opened.dataset_or_newest(dataset)
        name, number = (after.name, after.version) if after else ("", 0)
        others = [each for each in opened.versions() if str(each) != str(after)]
        others.sort(key=lambda each: each.name != name or each.version > number)
        other = opened.dataset(before) or next(iter(others), None)
        if after is None or other is None:
            message = "There is one version of this dataset; a second run with another recipe makes the next."
            title = "Nothing to compare yet"
            return room_page(opened, "compare", after, "error.html.j2", title=title, message=message)
        found = opened.lake.pictured_diff(str(other), str(after), SHOWN)
        rows = [(each, _gallery(each, other, after)) for each in found.causes]
        values = {"before": str(other), "after": str(after), "changes": rows, "diff": found}
        return room_page(opened, "compare", after, "compare.html.j2", **values)

    return router


def _change(dataset: str, kind: str, rule: str, keep: str) -> dict[str, str]:
    """Return the changed setting. Raise PairmillError for an address that names no rule."""
    if not dataset or kind not in ("image", "sentence") or len(keep) > LONGEST:
        raise PairmillError("there is no such rule; open the rules again.")
    return {f"{kind}s.{rule}.keep": keep}


def _gallery(change: Difference, before: Dataset, after: Dataset) -> str:
    """Return the query string of a change's gallery: of the earlier version if the later one lacks the images."""
    shown = before if (change.kind, change.cause) == ("lost", "gone") else after
    named = {"dataset": shown, "change": f"{change.kind}:{change.cause}", "since": before, "until": after}
    return urlencode(named)
