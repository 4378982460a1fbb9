"""Serve a version's rules: histograms with movable thresholds, and trials of a changed rule."""

import shlex
import threading
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import Response

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.compare.trial_cut import cut_plan, trial_cut, with_rule
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.queries.figures.saved_recipe import saved_recipe
from pairmill.catalog.queries.gallery.rule_view import beside, rule_views
from pairmill.catalog.recipe.thresholds import quantities
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.browse.asked import Asked
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.rendering import page

LONGEST = 4000


def routes(opened: BrowsedLake) -> APIRouter:
    """Return the routes of rules."""
    router = APIRouter()
    lock = threading.Lock()
    own: list[Lake] = []

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
        gallery = opened.gallery(str(version))
        if gallery is None:
            return page(
                "waiting.html.j2", path="/rules", asked=Asked.model_validate({"dataset": str(version)}), **frame
            )
        plan = plan_of(opened.lake, version)
        views = [
            (view, beside(gallery, view.quantity, view.kind) if view.quantity else {})
            for view in rule_views(gallery, plan)
        ]
        return page("rules.html.j2", views=views, **frame)

    @router.get("/rules/try")
    def try_rule(dataset: str, kind: str, rule: str, keep: str) -> Response:
        """Cut with a changed rule, without publishing, and show what moves."""
        version = opened.dataset(dataset)
        if version is None or kind not in ("image", "sentence") or len(keep) > LONGEST:
            raise PairmillError("there is no such rule; open the rules again.")
        plan = cut_plan(opened.lake, version)
        try:
            changed = with_rule(plan, kind, rule, keep)
            with lock:  # one connection, whose temporary tables a trial uses
                if not own:
                    own.append(create_or_open(opened.uri, read_only=True))
                found = trial_cut(own[0], plan, changed)
        except PairmillError as error:
            return page("trial.html.j2", fault=str(error))
        gallery = opened.gallery(dataset, is_scroll=True)
        near = {}
        if gallery:
            check = next(each for each in changed.checks(kind) if each.name == rule)
            known = quantities(check, gallery.columns(kind))
            bounds = [each for each in known if (each.low, each.high) != (None, None)]
            near = {name: rows for each in bounds for name, rows in beside(gallery, each, kind).items()}
        setting = shlex.quote(f"{kind}s.{rule}.keep={keep}")
        saved = urlencode({"dataset": dataset, "kind": kind, "rule": rule, "keep": keep})
        shown = {"trial": found, "near": near, "kind": kind, "dataset": dataset, "saved": saved, "fault": ""}
        return page("trial.html.j2", setting=f"--set {setting}", **shown)

    @router.get("/rules/recipe")
    def recipe(dataset: str, kind: str, rule: str, keep: str) -> Response:
        """Return the version's recipe with a changed rule as a file to save."""
        version = opened.dataset(dataset)
        if version is None or kind not in ("image", "sentence") or len(keep) > LONGEST:
            raise PairmillError("there is no such rule; open the rules again.")
        with_rule(cut_plan(opened.lake, version), kind, rule, keep)  # refuses what is no rule
        text = saved_recipe(opened.lake, version, kind, rule, keep)
        headers = {"Content-Disposition": f'attachment; filename="{version.name}.yaml"'}
        return Response(text, media_type="application/yaml", headers=headers)

    return router
