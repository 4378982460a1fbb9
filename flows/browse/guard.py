"""Guard the browser's server: only this machine's user, only its own pages, no script that a page's texts contain.

- The address holds a token, as Jupyter's does. The first request stores it in a cookie that scripts cannot read.
- The Host header must name loopback: another site's name that resolves to 127.0.0.1 (DNS rebinding) is refused.
- A request that changes something must come from an own page, by its Origin. No answer allows another origin to read.
- Every answer forbids scripts, styles, pictures and requests from anywhere but this server, and inline scripts. Only a
  report brings a policy of its own: it is one file with its style in it, and without a script.
"""

import hmac
from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send `Origin: null` with an own form
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
READING = ("GET", "HEAD")


class Guard:
    """ASGI middleware: refuse foreign hosts, foreign origins and requests without token; add HEADERS to each answer."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._cookie = f"pairmill-{port}"
        self._hosts = tuple(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is refused or brings its token; pass others to the application."""
        if scope["type"] != "http":
            return
        request = Request(scope)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [(n.lower().encode(), v.encode()) for n, v in HEADERS.items() if n.lower().encode() not in given]
                more += [] if b"cache-control" in given else [(b"cache-control", b"no-store")]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        answer = self._refusal(request) or self._admission(request)
        await (answer or self._app)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request of another host or origin, None for others."""
        if request.headers.get("host") not in self._hosts:
            return PlainTextResponse("refused: this server answers to 127.0.0.1 and localhost alone.", 421)
        own = [f"http://{host}" for host in self._hosts]
        origin = request.headers.get("origin")
        if (origin is not None and origin not in own) or (origin is None and request.method not in READING):
            return PlainTextResponse("refused: the request comes from another site.", 403)
        return None

    def _admission(self, request: Request) -> Response | None:
        """Return the answer to a request that brings the token in its address, or brings none; None if it may pass."""
        given = request.query_params.get("token")
        if given is not None and self._is_token(given):
            rest = [pair for pair in parse_qsl(request.url.query, keep_blank_values=True) if pair[0] != "token"]
            answer = RedirectResponse(_address(request.url.path, rest), 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="lax", path="/")
            return answer
        if given is None and self._is_token(request.cookies.get(self._cookie, "")):
            return None
        return PlainTextResponse("refused: open the address that `pairmill browse` printed, with its token.", 403)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def _address(path: str, query: Sequence[tuple[str, str]]) -> str:
    """Return path and query with one leading slash; '//host' would lead to another server."""
    return "/" + path.lstrip("/") + (f"?{urlencode(query)}" if query else "")
