"""Ask OpenAI-compatible endpoints: many requests at once, tried again where that helps, by others where one is lost.

All of it runs in one event loop, in a thread of its own, so that callers may be threads.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from pairmill.ops.models.generation import Generation
from pairmill.ops.models.http.chat_answer import Refused, RetryableFailure
from pairmill.ops.models.http.concurrency import Concurrency
from pairmill.ops.models.http.endpoint import Endpoint
from pairmill.ops.models.http.http_spec import HttpSpec
from pairmill.ops.models.http.watch import Watch, pause
from pairmill.ops.models.model_error import ModelError

# A request that fails so often, while others are answered, is at fault itself. Once its connection broke twice it has
# an endpoint to itself: an engine that it kills then takes no other's answer with it.
MOST_STRIKES, BROKEN_ALONE = 5, 2
# A server that asks for more patience than this is for another day.
MOST_PATIENCE = 600.0
# So many failures in a row, before anything was answered and after that, are no picture's fault.
FAILURES_AT_FIRST, FAILURES_LATER = 8, 100


@dataclass(frozen=True)
class Patience:
    """How many seconds a client waits: for one ``request`` at most, in an ``outage`` (nobody answers, or only that it
    is busy) until the run ends, before a second try, and between two ``probes`` of an endpoint. An engine that is
    started again loads its model for some minutes."""

    request: float = 300.0
    outage: float = 900.0
    second_try: float = 0.25
    probes: float = 600.0


class EndpointSilent(ModelError):
    """Nobody answers at an endpoint, for now."""


class ChatClient:
    """Requests to one model behind one or several endpoints, at most ``connections`` at once at each.

    ``key`` is the name of the variable that holds the endpoints' key, '' for none. With ``known`` answers to the
    probe's questions each endpoint is asked these now and then, and when it comes back: another model ends the run.
    Raises ModelError when the variable is empty.
    """

    def __init__(
        self,
        spec: HttpSpec,
        key: str = "",
        connections: int = 256,
        known: tuple[str, ...] = (),
        patience: Patience | None = None,
    ) -> None:
        self._spec, self._known, self._patience = spec, known, patience or Patience()
        from pairmill.ops.models.http.chat_connection import (
            ChatConnection,  # aiohttp, 0.25 CPU s: a flow only names models
        )

        self._connection = ChatConnection(spec, key, self._patience.request)
        self.endpoints = [Endpoint(url, Concurrency(connections)) for url in spec.endpoints]
        self._over: ModelError | None = None
        self._dark_since, self._last_why = 0.0, ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoints", daemon=True)
        self._thread.start()
        self._run(self._open())
        atexit.register(self.close)

    def submit(self, messages: bytes, max_tokens: int) -> Future[Generation]:
        """Send a request as soon as an endpoint has room for it; return what its answer will be in.

        Waits for that room, so that no more is under way than the endpoints work at. Raises ModelError when the run is
        over: no endpoint lets us ask, or none answers any more.
        """
        return self._run(self._admit(messages, max_tokens))

    def probe(self, endpoint: Endpoint) -> tuple[str, ...]:
        """Ask an endpoint the probe's questions, one after the other, and return its answers. Raises EndpointSilent when nobody
        answers, ModelError for an answer that no request would do better with."""
        answers = self._run(self._watch.probe(endpoint))
        if isinstance(answers, RetryableFailure):
            raise EndpointSilent(
                f"{self._connection.where(endpoint)} does not answer: {answers.why}; start it, or correct the address"
            )
        return answers

    def server(self, endpoint: Endpoint) -> str:
        """Return what an endpoint says that it is: its Server header, who owns the model, its version."""
        return self._run(self._connection.described(endpoint))

    def close(self) -> None:
        """Close all connections; what is under way gets no answer."""
        atexit.unregister(self.close)
        if self._loop.is_running():
            self._run(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> None:
        self._changed = asyncio.Event()
        self._alone = asyncio.Lock()
        self._tasks: set[asyncio.Task] = set()  # a loop holds its tasks weakly
        self._watch = Watch(self._connection, self._known, self._end, self._is_back, self._patience.second_try)
        await self._connection.open()
        if self._known:
            self._begin(self._watch.keep(self.endpoints, self._patience.probes))

    async def _close(self) -> None:
        self._end(ModelError(f"model 'http:{self._spec.name}': its connections are closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _admit(self, messages: bytes, max_tokens: int) -> Future[Generation]:
        endpoint = await self._room()
        answer: Future[Generation] = Future()
        self._begin(self._converse(messages, max_tokens, endpoint, answer))
        return answer

    async def _converse(self, messages: bytes, max_tokens: int, endpoint: Endpoint, answer: Future[Generation]) -> None:
        try:
            answer.set_result(await self._persist(messages, max_tokens, endpoint))
        except ModelError as error:
            self._end(error)
            answer.set_exception(error)
        except BaseException as error:
            answer.set_exception(error)

    async def _persist(self, messages: bytes, max_tokens: int, endpoint: Endpoint) -> Generation:
        """Ask until there is an answer, or it is clear that there will be none. ``endpoint`` has room for it."""
        began = time.monotonic()
        strikes = broken = retries = discarded = unbelieved = 0
        async with AsyncExitStack() as stack:
            while True:
                async with endpoint.alone(besides=1) if broken >= BROKEN_ALONE else nullcontext():
                    outcome = await self._turn(endpoint, messages, max_tokens)
                if not isinstance(outcome, RetryableFailure):
                    break
                retries, discarded = retries + 1, discarded + outcome.discarded
                unbelieved += outcome.unbelieved
                strikes, broken = strikes + outcome.is_strike, broken + (outcome.kind == "broken")
                if strikes >= MOST_STRIKES:
                    reason = {"late": "timeout", "broken": "poison"}.get(outcome.kind, "model_error")
                    outcome = Refused(reason, f"failed {strikes} times: {outcome.why}")
                    self._count_failure(endpoint, outcome)
                    break
                if outcome.is_strike:
                    await asyncio.sleep(pause(self._patience.second_try, strikes))
                if broken == BROKEN_ALONE and outcome.kind == "broken":
                    await stack.enter_async_context(self._alone)
                endpoint = await self._room(avoid=endpoint)
        if isinstance(outcome, Refused):
            outcome = Generation("", 0, "stop", 0.0, outcome.reason, outcome.said)
        unbelieved += outcome.unbelieved_tokens
        took = {"seconds": time.monotonic() - began, "retries": retries, "discarded_tokens": discarded}
        return replace(outcome, **took, unbelieved_tokens=unbelieved)

    async def _turn(
        self, endpoint: Endpoint, messages: bytes, max_tokens: int
    ) -> Generation | RetryableFailure | Refused:
        """Ask once in the room that the endpoint has, and have it remember what came of it."""
        started = time.monotonic()
        try:
            outcome = await self._connection.ask(endpoint, messages, max_tokens)
        finally:
            endpoint.end()
            self._changed.set()
        now = time.monotonic()
        if isinstance(outcome, RetryableFailure):
            if outcome.kind in ("unreachable", "broken", "overload"):
                self._dark_since, self._last_why = self._dark_since or now, outcome.why
            self._reduce_requests(endpoint, outcome, now)
        else:
            self._dark_since = 0.0
            endpoint.answered(now)
            if isinstance(outcome, Refused):
                self._count_failure(endpoint, outcome)
            else:
                self._connection.took(now - started)
                endpoint.n_answered, endpoint.n_failed = endpoint.n_answered + 1, 0
        return outcome

    def _reduce_requests(self, endpoint: Endpoint, outcome: RetryableFailure, now: float) -> None:
        """Have the endpoint get less, or nothing for a while. Raises ModelError when each wants too long a while."""
        if outcome.kind in ("unreachable", "broken"):
            if self._known and not endpoint.is_watched:
                endpoint.is_watched = True
                self._begin(self._watch.probe_until_back(endpoint))
            endpoint.lose(now)
        elif outcome.kind == "overload" or outcome.after:
            endpoint.rest(now, outcome.after)
            if min(each.resumes_at for each in self.endpoints) - now > MOST_PATIENCE:
                raise ModelError(
                    f"{self._connection.where(endpoint)} asks to wait {outcome.after:.0f} s ({outcome.why}); what is "
                    "finished is committed: run the same command again then"
                )
        elif outcome.kind == "late":
            endpoint.concurrency.slow_down()

    async def _room(self, avoid: Endpoint | None = None) -> Endpoint:
        """Wait for an endpoint that has room, and take it: the least busy one, another than ``avoid`` if there is."""
        while True:
            if self._over:
                raise self._over
            now = time.monotonic()
            if self._dark_since and now - self._dark_since > self._patience.outage:
                raise self._outage(now)
            if free := [each for each in self.endpoints if each.has_room(now)]:
                chosen = min(free, key=lambda each: (each is avoid, each.in_flight / each.concurrency.limit))
                chosen.begin()
                return chosen
            await self._change(min([1.0, *(each.resumes_at - now for each in self.endpoints if each.resumes_at > now)]))

    async def _change(self, seconds: float) -> None:
        """Wait until a request ends somewhere, or the time is over."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _count_failure(self, endpoint: Endpoint, refused: Refused) -> None:
        endpoint.n_failed += refused.reason != "too_large" or not endpoint.n_answered
        if endpoint.n_failed >= (FAILURES_LATER if endpoint.n_answered else FAILURES_AT_FIRST):
            raise ModelError(
                f"{self._connection.where(endpoint)} fails at one request after the other ({refused.said}); check the "
                "server, that its model takes pictures and prompts of this length, and the settings"
            )

    def _outage(self, now: float) -> ModelError:
        urls = ", ".join(each.url for each in self.endpoints)
        return ModelError(
            f"model 'http:{self._spec.name}': no answer from {urls} for {now - self._dark_since:.0f} s "
            f"({self._last_why}); what is finished is committed: start it, or correct the address, and run again"
        )

    def _is_back(self) -> None:
        self._dark_since = 0.0
        self._changed.set()

    def _end(self, error: ModelError) -> None:
        """Let nobody wait for an answer that nobody will give."""
        self._over = self._over or error
        self._changed.set()
