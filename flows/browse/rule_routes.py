"""Serve a version's rules: histograms with movable thresholds, and trials of a changed rule."""

import shlex
import threading
from urllib.parse import urlencode

import yaml
from fastapi import APIRouter
from starlette.responses import Response

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.flows.browse.asked import Asked
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.rendering import page

LONGEST = 4000


def routes(opened: BrowsedLake) -> APIRouter:
    """Return the routes of rules."""
    router = APIRouter()
    lock = threading.Lock()
    own: list[OpenLake] = []

    def close() -> None:
        """Close the connection of the trials."""
        for lake in own:
            lake.close()

    opened.closing.append(close)

    @router.get("/rules")
    def rules(dataset: str = "") -> Response:
        """Show a version's rules: those on images, then those on sentences."""
        versions = opened.versions()
        version = opened.dataset(dataset) or next(iter(versions), None)
        frame = {"versions": versions, "room": "rules", "dataset": str(version or "")}
        if version is None:
            return page("error.html.j2", title="No rules yet", message="No dataset is published here.", **frame)
        if opened.gallery(str(version)) is None:
            return page(
                "waiting.html.j2", path="/rules", asked=Asked.model_validate({"dataset": str(version)}), **frame
            )
        return page("rules.html.j2", views=opened.lake.rules(str(version)), **frame)

    @router.get("/rules/try")
    def try_rule(dataset: str, kind: str, rule: str, keep: str) -> Response:
        """Cut with a changed rule, without publishing, and show what moves."""
        change = _change(dataset, kind, rule, keep)
        try:
            with lock:  # one connection, whose temporary tables a trial uses
                if not own:
                    own.append(open_lake(opened.uri))
                found = own[0].try_recut(dataset, change)
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

    return router


def _change(dataset: str, kind: str, rule: str, keep: str) -> dict[str, str]:
    """Return the changed setting. Raise PairmillError for an address that names no rule."""
    if not dataset or kind not in ("image", "sentence") or len(keep) > LONGEST:
        raise PairmillError("there is no such rule; open the rules again.")
    return {f"{kind}s.{rule}.keep": keep}
