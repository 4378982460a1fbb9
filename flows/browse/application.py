"""Build the browser's application, and serve it on loopback."""

import errno
import secrets
import socket
from collections.abc import Callable

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.browse import act_routes, gallery_routes, item_routes, judge_routes, map_routes, version_routes
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.guard import Guard
from pairmill.flows.browse.picture_maps import PictureMaps
from pairmill.flows.browse.picture_search import PictureSearch
from pairmill.flows.browse.rendering import page
from pairmill.flows.pages.renderer import FOLDER


def application(
    opened: BrowsedLake, token: str, port: int, searching: Callable[[BrowsedLake], PictureSearch] = PictureSearch
) -> ASGIApp:
    """Build the browser's ASGI application over an open lake, behind `Guard`; ``searching`` builds its search."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, dependencies=[Depends(opened.forget_removed)])
    search = searching(opened)
    maps = PictureMaps(search)
    opened.closing.append(maps.close)
    opened.forgetting += [search.forget, maps.forget, gallery_routes.forget]
    for rooms in (item_routes, version_routes, judge_routes):
        app.include_router(rooms.routes(opened))
    choice_of = gallery_routes.choosing(opened, search, maps)
    app.include_router(gallery_routes.routes(opened, search, choice_of))
    app.include_router(act_routes.routes(opened, choice_of))
    app.include_router(map_routes.routes(opened, maps))
    app.mount("/static", StaticFiles(directory=FOLDER / "static"))

    @app.get("/")
    def home() -> Response:
        """Redirect to the gallery of the newest dataset, or of the whole lake if nothing is published."""
        newest = opened.dataset_or_newest("")
        return RedirectResponse(f"/gallery?dataset={newest}" if newest else "/gallery", 303)

    @app.exception_handler(PairmillError)
    def wrong(_: Request, error: PairmillError) -> Response:
        """Show an error that the user can fix."""
        return page("error.html.j2", 400, title="Not possible", message=str(error))

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> Response:
        """Show the first fault of an address's query string."""
        fault = error.errors()[0]
        message = f"'{fault['loc'][-1]}' in the address: {fault['msg']}."
        return page("error.html.j2", 400, title="Not understood", message=message)

    @app.exception_handler(404)
    def absent(_: Request, __: Exception) -> Response:
        """Show that there is no such page."""
        return page("error.html.j2", 404, title="Nothing here", message="There is no such page or picture.")

    return Guard(app, token, port)


def serve(lake: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve the lake on 127.0.0.1 until Ctrl-C; call ``announce`` with the address. Port 0 takes any free port.

    Raises PairmillError if there is no lake, or the port is taken.
    """
    opened = BrowsedLake(lake)
    try:
        with _bound(port) as listening:
            port, token = listening.getsockname()[1], secrets.token_urlsafe(24)
            app = application(opened, token, port)
            config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", ws="none",
                                    server_header=False, date_header=False, timeout_graceful_shutdown=1)  # fmt: skip
            opened.watch()
            announce(f"http://127.0.0.1:{port}/?token={token}")
            uvicorn.Server(config).run([listening])
    finally:
        opened.close()


def _bound(port: int) -> socket.socket:
    """Return a socket bound to ``port`` of loopback."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise PairmillError(f"port {port} is in use. Name another by --port; 0 takes any free one.") from error
        raise
    return found
