"""Serve people's acts on selected pictures: leave out, keep, tag, edit captions, undo; publish them."""

import hashlib
import shlex
import threading
from collections import Counter
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from pairmill.catalog.lake.side_folders import cache_folder
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.answer_types import Choice, Dataset
from pairmill.flows.api.picture_acts import act_on, list_acts, undo_act
from pairmill.flows.api.text_edits import TextEdit, edit_texts
from pairmill.flows.browse.asked import ID, Asked, sent_form
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.gallery_routes import Choosing
from pairmill.flows.browse.rendering import room_page, unpublished_page

MOST_BYTES = 5_000_000  # of a form: 100,000 pictures that are ticked one by one
Picture = Annotated[str, Field(pattern=ID.pattern.join("^$"))]


class SentAct(BaseModel):
    """Fields of the form that acts on pictures of a gallery: those that are ticked, or ``every`` one of its query."""

    act: Literal["leave_out", "keep", "tag", "untag", "edit", "export", "undo"]
    dataset: str = Field(max_length=200)
    picture: list[Picture] = []
    every: bool = False
    query: str = Field("", max_length=20_000)
    word: str = Field("", max_length=100)
    text: str = Field("", max_length=10_000)
    act_id: str = Field("", pattern=r"^[0-9a-f]{0,32}$")


class WantedVersion(BaseModel):
    """Field of the form that publishes the acts as a version."""

    dataset: str = Field(max_length=200)


def routes(opened: BrowsedLake, choose: Choosing) -> APIRouter:
    """Build the router of acts. One connection prepares them, one act at a time."""
    router, lock = APIRouter(), threading.Lock()

    def fates(sent: SentAct) -> dict[str, str]:
        """Return sha256 -> fate of the pictures that are meant."""
        shown = opened.gallery(sent.dataset, is_scroll=True) or opened.gallery(sent.dataset)
        if shown is None:
            raise PairmillError("the lake is being read; try again in a minute.")
        if sent.every:
            asked = Asked.model_validate(dict(parse_qsl(sent.query)) | {"dataset": sent.dataset})
            return shown.fates_of_pictures(choose(asked, shown))
        return shown.fates_of_pictures(Choice(among=tuple(sent.picture)))

    def export_line(version: Dataset, chosen: dict[str, str]) -> str:
        """Write a list of the pictures beside the gallery files, where a removal deletes it; return its command."""
        data = "".join(f"{line}\n" for line in ("sha256,fate", *map(",".join, chosen.items())))
        name = f"selection-{hashlib.sha256(data.encode()).hexdigest()[:16]}.csv"
        path = cache_folder(opened.lake.lake, "browse") / name
        path.write_text(data, encoding="utf-8")
        words = ("pairmill", "export", version, "--list", path, "--to", f"{version}-selection", "--lake", opened.uri)
        return shlex.join(map(str, words))

    def store(sent: SentAct) -> dict[str, Any]:
        """Store the act, and return the values of the template that tells it."""
        name, lake = sent.dataset, opened.connection("acts").lake
        if sent.act == "undo":
            act, waits = undo_act(lake, name, sent.act_id)
            return {"act": f"undone: {act}", "pictures": act.pictures, "waits": waits, "act_id": ""}
        found = fates(sent)
        if sent.act == "edit":
            act_id, waits, _, shown = edit_texts(lake, name, TextEdit(pictures=tuple(found), text=sent.text))
            return {"act": f"caption: '{sent.text}'", "pictures": shown.changed, "waits": waits, "act_id": act_id}
        done = act_on(lake, name, sent.act, found, sent.word if sent.act in ("tag", "untag") else "")
        said = " ".join([sent.act.replace("_", " "), sent.word if sent.act in ("tag", "untag") else ""])
        return {"act": said.strip(), "pictures": done.pictures, "waits": done.is_waiting, "act_id": done.act_id}

    @router.post("/acts")
    def act(sent: Annotated[SentAct, Depends(sent_form(SentAct, MOST_BYTES, "picture"))]) -> Response:
        """Act on the pictures, and tell what was done; 'export' writes a list of them, and tells how to export it."""
        version = opened.dataset(sent.dataset)
        if version is None:
            raise PairmillError("choose a dataset version first: acts are on one.")
        with lock:
            if sent.act == "export":
                chosen = fates(sent)
                values = {"pictures": len(chosen), "kept": Counter(chosen.values())["kept"], "back": sent.query}
                line = export_line(version, chosen)
                return room_page(opened, "acts", version, "exported.html.j2", line=line, **values)
            done = store(sent)
        return room_page(opened, "acts", version, "acted.html.j2", back=sent.query, **done)

    @router.get("/acts")
    def acts(dataset: str = "") -> Response:
        """List the acts on a dataset, newest first, with a button that undoes each."""
        version = opened.dataset_or_newest(dataset)
        if version is None:
            return unpublished_page(opened, "acts", "No acts yet")
        with lock:
            rows, faults = list_acts(opened.connection("acts").lake, version.name)
        values = {"acts": rows[::-1], "faults": faults, "commit": version.commit}
        return room_page(opened, "acts", version, "acts.html.j2", **values)

    @router.get("/publish")
    def preview(dataset: str) -> Response:
        """Show what the next version would change by the acts."""
        version = opened.lake.dataset(dataset).version
        with lock:
            lake = opened.connection("acts")
            moved, missing = lake.unpublished(str(version))
            waiting = sum(each.is_waiting for each in list_acts(lake.lake, version.name)[0])
        run = f"pairmill run {shlex.quote(version.name)} --lake {shlex.quote(opened.uri)}"
        values = {"moved": moved, "missing": missing, "waiting": waiting, "run": run}
        return room_page(opened, "acts", version, "publish.html.j2", **values)

    @router.post("/publish")
    def publish(wanted: Annotated[WantedVersion, Depends(sent_form(WantedVersion))]) -> Response:
        """Publish the version, and lead to its comparison with the one before."""
        found = opened.lake.recut(wanted.dataset, {}).version
        return RedirectResponse(f"/compare?dataset={quote(str(found))}", 303)

    return router
