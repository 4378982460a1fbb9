"""Send requests to OpenAI-compatible endpoints concurrently, with retries and failover between endpoints.

All requests run in one event loop on its own thread, so any thread may call the client.
"""

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
from pairmill.ops.models.http.chat_messages import Outcome, Refused, RetryableFailure
from pairmill.ops.models.http.endpoint import Concurrency, Endpoint
from pairmill.ops.models.http.http_spec import HttpSpec
from pairmill.ops.models.http.probe import Watch, pause
from pairmill.ops.models.model_error import ModelError

# Refuse a request after 5 strikes, while other requests succeed. After its connection broke twice, the request gets an
# endpoint to itself: if it crashes the engine, no other answer is lost.
MOST_STRIKES, BROKEN_ALONE = 5, 2
# Longest wait in seconds that a server may ask for; beyond this the run ends.
MOST_PATIENCE = 600.0
# Failures in a row that end the run, before the first answer and after it: so many are not single images' fault.
FAILURES_AT_FIRST, FAILURES_LATER = 8, 100


@dataclass(frozen=True)
class Patience:
    """Time limits of a client, in seconds."""

    request: float = 300.0  # for one request
    # Without any answer until the run ends; an overload is none. A restarted engine loads its model for some minutes.
    outage: float = 900.0
    second_try: float = 0.25  # before the first retry
    probes: float = 600.0  # between two probes of an endpoint


class EndpointSilent(ModelError):
    """An endpoint does not answer at the moment."""


class ChatClient:
    """Client of one model behind one or several endpoints.

    ``key`` names the environment variable with the endpoints' key, '' for none; raises ModelError if it is empty. At
    most ``connections`` requests are in flight per endpoint. With ``known`` answers to the probe's questions, each
    endpoint is probed now and then, and before it is used after an outage; an endpoint with another model ends the run.
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
        # imports aiohttp, 0.25 CPU s: a flow only names models
        from pairmill.ops.models.http.chat_connection import ChatConnection

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
        """Send a request as soon as an endpoint has room; return a future of its answer.

        Blocks until there is room. Raises ModelError if the run ended: no endpoint accepts requests or answers.
        """
        return self._run(self._admit(messages, max_tokens))

    def probe(self, endpoint: Endpoint) -> tuple[str, ...]:
        """Ask an endpoint the probe's fixed questions, one after the other; return its answers.

        Raises EndpointSilent if the endpoint does not answer, ModelError if it would fail on every request.
        """
        if isinstance(answers := self._run(self._watch.probe(endpoint)), RetryableFailure):
            raise EndpointSilent(
                f"{self._connection.where(endpoint)} does not answer: {answers.why}; start it, or correct the address"
            )
        return answers

    def server(self, endpoint: Endpoint) -> str:
        """Return an endpoint's own description: its Server header, the model's owner, its version."""
        return self._run(self._connection.described(endpoint))

    def close(self) -> None:
        """Close all connections; requests in flight get no answer."""
        atexit.unregister(self.close)
        if self._loop.is_running():
            self._run(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the event loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> None:
        """Create the loop's own objects and connections, and start the periodic probes."""
        self._changed = asyncio.Event()
        self._alone = asyncio.Lock()
        self._tasks: set[asyncio.Task] = set()  # keeps tasks alive; the loop has weak references only
        self._watch = Watch(self._connection, self._known, self._end, self._is_back, self._patience.second_try)
        await self._connection.open()
        if self._known:
            self._begin(self._watch.keep(self.endpoints, self._patience.probes))

    async def _close(self) -> None:
        """End the run, cancel all tasks and close the connections."""
        self._end(ModelError(f"model 'http:{self._spec.name}': its connections are closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a background task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _admit(self, messages: bytes, max_tokens: int) -> Future[Generation]:
        """Wait for room at an endpoint, start the request, and return a future of its answer."""
        endpoint = await self._room()
        answer: Future[Generation] = Future()
        self._begin(self._converse(messages, max_tokens, endpoint, answer))
        return answer

    async def _converse(self, messages: bytes, max_tokens: int, endpoint: Endpoint, answer: Future[Generation]) -> None:
        """Set the future's answer or error. A ModelError also ends the run."""
        try:
            answer.set_result(await self._persist(messages, max_tokens, endpoint))
        except ModelError as error:
            self._end(error)
            answer.set_exception(error)
        except BaseException as error:
            answer.set_exception(error)

    async def _persist(self, messages: bytes, max_tokens: int, endpoint: Endpoint) -> Generation:
        """Retry a request until it is answered or refused. ``endpoint`` has room for the first attempt."""
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

    async def _turn(self, endpoint: Endpoint, messages: bytes, max_tokens: int) -> Outcome:
        """Send the request once to an endpoint that has room, and update the endpoint's state by the outcome."""
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
        """Reduce or pause an endpoint's requests. Raises ModelError if every one asks for more than MOST_PATIENCE."""
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
        """Occupy the least busy endpoint but ``avoid``. ModelError if the run ended, or after ``outage`` seconds."""
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
        """Wait until any request ends, or ``seconds`` have passed."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _count_failure(self, endpoint: Endpoint, refused: Refused) -> None:
        """Count a refusal, but a too long prompt only while nothing was answered. Raises ModelError after too many."""
        endpoint.n_failed += refused.reason != "too_large" or not endpoint.n_answered
        if endpoint.n_failed >= (FAILURES_LATER if endpoint.n_answered else FAILURES_AT_FIRST):
            raise ModelError(
                f"{self._connection.where(endpoint)} fails at one request after the other ({refused.said}); check the "
                "server, that its model takes pictures and prompts of this length, and the settings"
            )

    def _outage(self, now: float) -> ModelError:
        """Return the error of an outage, with its length and the last failure."""
        urls = ", ".join(each.url for each in self.endpoints)
        return ModelError(
            f"model 'http:{self._spec.name}': no answer from {urls} for {now - self._dark_since:.0f} s "
            f"({self._last_why}); what is finished is committed: start it, or correct the address, and run again"
        )

    def _is_back(self) -> None:
        """Note that an endpoint can be used again."""
        self._dark_since = 0.0
        self._changed.set()

    def _end(self, error: ModelError) -> None:
        """End the run with ``error``, unless it has ended, and wake up all waiting requests."""
        self._over = self._over or error
        self._changed.set()
