"""What `lore dash` serves: the page, pictures of now, and turns and memories as the daemon has them.

    browser ──HTTP, token──▶ loopback ──▶ Site ──▶ Live ◀── look, whenever the daemon's events or a few seconds say so
                                           └─────▶ client   one request of the daemon's for each of the page's

It only shows: nothing that the page can ask for changes anything. Of the daemon nothing is asked while no page listens. A
page that reads slowly misses pictures, and gets the newest. Where the daemon is away a shot says so, and the next one
follows when it is back.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode

from orchestrator.cli.client import Daemon, Failure, route_part
from orchestrator.cli.loopback import Loopback, PageAnswer, PageRequest, Stream
from orchestrator.cli.terminal import note, result
from orchestrator.wire import faults
from orchestrator.wire.picture import Replies, files_of, picture

PAGE = Path(__file__).with_name("dash.html")
TOKEN_BYTES, NONCE_BYTES = 24, 16
NONCE = 'nonce=""'  # stands in the page where its one style and its one script get theirs
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
STATUSES = {faults.UNREACHABLE: 503, faults.NOT_FOUND: 404, faults.NOT_PERMITTED: 403, faults.USAGE: 400}
LOOK_S = 3.0  # between two looks where the daemon tells nothing
REST_S = 0.3  # between two looks, whatever it tells
AGAIN_S = 1.0  # until an absent daemon is looked for again
ALIVE_S = 15.0  # between two signs of life to a page: one that has left is noticed by them
QUESTIONS = 12

Shot = Mapping[str, Any]
T = TypeVar("T")


async def serve(port: int, socket: str | None) -> None:
    """Never returns. Raises Failure where the port is taken."""
    asyncio.get_running_loop().set_exception_handler(lambda _, told: note(f"lore dash: {told.get('exception')!r}"))
    token = secrets.token_urlsafe(TOKEN_BYTES)
    loopback = Loopback(token, Site(socket).answer)
    try:
        server = await loopback.start(port)
    except OSError as error:
        raise Failure(faults.FAILED, f"127.0.0.1:{port}: {error.strerror}", "--port names another") from error
    result(f"http://127.0.0.1:{loopback.port}/?token={token}")
    note("Ctrl-C ends it; who has this address sees what you may see")
    async with server:
        await server.serve_forever()


class Site:
    """What the page may ask for, of the daemon at `socket`. For one event loop."""

    def __init__(self, socket: str | None) -> None:
        self._socket = socket
        self._live = Live(socket)

    async def answer(self, asked: PageRequest) -> PageAnswer | Stream:
        try:
            match asked.parts:
                case ("",):
                    return page()
                case ("live",):
                    return Stream(self._live.shots())
                case ("traces",):
                    return await self._told("/v1/traces", asked, "n", "before")
                case ("traces", name):
                    return await self._told(f"/v1/traces/{part(name, 'trace')}", asked, "prompt")
                case ("files", name):
                    codex = f"/v1/codices/{part(name, 'codex')}/files"
                    return as_json(200, asdict(files_of(await in_thread(partial(told_of, self._socket, codex)))))
                case ("memories",):
                    return await self._told("/v1/memories", asked, "state", "kind", "codex", "review")
                case ("memories", name):
                    return await self._told(f"/v1/memories/{part(name, 'memory')}", asked)
            return problem(Failure(faults.NOT_FOUND, "nothing is here"))
        except Failure as failure:
            return problem(failure)

    async def _told(self, route: str, asked: PageRequest, *names: str) -> PageAnswer:
        """What the daemon tells of a route, by those of the request's parameters that are its own. Raises Failure."""
        chosen = urlencode({name: value for name, value in asked.query.items() if name in names})
        return as_json(200, await in_thread(partial(told_of, self._socket, f"{route}?{chosen}" if chosen else route)))


class Live:
    """Of the daemon at `socket`. For one event loop."""

    def __init__(self, socket: str | None) -> None:
        self._socket = socket
        self._traces: dict[str, Any] = {}  # by their id; what they tell changes no more
        self._shot: Shot = {}
        self._number = 0
        self._new = asyncio.Condition()
        self._stirred = asyncio.Event()
        self._listeners = 0
        self._looking: asyncio.Task[None] | None = None

    async def shots(self) -> AsyncIterator[bytes]:
        """Server-sent events: the newest shot, then each that differs."""
        self._listeners += 1
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look_on())
        seen = 0
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(ALIVE_S), self._new:
                        while self._number == seen:
                            await self._new.wait()
                yield b": \n\n" if seen == self._number else event(self._shot)
                seen = self._number
        finally:
            self._listeners -= 1
            if not self._listeners and self._looking:
                self._looking.cancel()
                self._looking = None

    async def _look_on(self) -> None:
        following = asyncio.ensure_future(self._follow())
        try:
            while True:
                self._stirred.clear()
                await self._publish(await in_thread(self._look))
                await asyncio.sleep(REST_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._stirred.wait()
        finally:
            following.cancel()

    async def _publish(self, shot: Shot) -> None:
        if shot != self._shot or not self._number:
            async with self._new:
                self._shot = shot
                self._number += 1
                self._new.notify_all()

    async def _follow(self) -> None:
        """Has a look taken with each event of the daemon's."""
        loop = asyncio.get_running_loop()
        while True:
            with suppress(Failure):
                daemon = await in_thread(partial(Daemon, self._socket))
                try:
                    await in_thread(partial(self._stir, daemon, loop))
                finally:
                    daemon.leave()
            await asyncio.sleep(AGAIN_S)
            self._stirred.set()

    def _stir(self, daemon: Daemon, loop: asyncio.AbstractEventLoop) -> None:
        for _ in daemon.stream("/v1/events", method="GET"):
            loop.call_soon_threadsafe(self._stirred.set)

    def _look(self) -> Shot:
        try:
            daemon = Daemon(self._socket)
        except Failure as failure:
            return away(failure)
        try:
            return {"picture": asdict(picture(self._replies(daemon)))}
        except Failure as failure:
            return away(failure)
        except (LookupError, TypeError, AttributeError, ValueError, HTTPException) as error:
            return away(not_ours(error))
        finally:
            daemon.connection.close()

    def _replies(self, daemon: Daemon) -> Replies:
        status = daemon.call("GET", "/v1/status")
        rows = (permitted(daemon, f"/v1/traces?n={QUESTIONS}") or {"traces": ()})["traces"]
        known = {row["id"]: self._traces.get(row["id"]) or permitted(daemon, f"/v1/traces/{row['id']}") for row in rows}
        self._traces = {name: found for name, found in known.items() if found}
        return Replies(
            status=status,
            engine=permitted(daemon, "/v1/engine"),
            cache=permitted(daemon, "/v1/stats/cache"),
            traces=[found["trace"] for found in self._traces.values()],
            files=None,
        )


# ---- the daemon, asked from threads ----------------------------------------------------------------------------------


async def in_thread(work: Callable[[], T]) -> T:
    """The result of a call that blocks. Ctrl-C does not wait for it, as it would for a pool's threads."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def tell(act: Callable[[Any], None], what: object) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(lambda: None if result.done() else act(what))

    def run() -> None:
        try:
            tell(result.set_result, work())
        except Exception as error:  # noqa: BLE001 - it goes on where the result is awaited
            tell(result.set_exception, error)

    Thread(target=run, daemon=True).start()
    return await result


def told_of(socket: str | None, route: str) -> Any:
    """Raises Failure."""
    daemon = Daemon(socket)
    try:
        return daemon.call("GET", route)
    except HTTPException as error:
        raise not_ours(error) from error
    finally:
        daemon.connection.close()


def permitted(daemon: Daemon, route: str) -> Any:
    """The reply; None where the user's sigil does not permit it, or a daemon of another version has no such route."""
    try:
        return daemon.call("GET", route)
    except Failure as failure:
        if failure.status in (faults.NOT_PERMITTED, faults.NOT_FOUND, faults.USAGE):
            return None
        raise


def not_ours(error: Exception) -> Failure:
    """What an answer is that cannot be read: of a daemon of another version, or of one that ended in the middle of it."""
    return Failure(faults.FAILED, f"the daemon's answer cannot be used ({error!r})", "`lore doctor` looks into it")


def away(failure: Failure) -> Shot:
    return {"away": failure.message, "hint": failure.hint}


# ---- answers; pure but for the nonce ---------------------------------------------------------------------------------


def page() -> PageAnswer:
    """With a nonce of its own each time, so that nothing else in it runs, whatever gets there."""
    nonce = secrets.token_urlsafe(NONCE_BYTES)
    text = PAGE.read_text("utf-8").replace(NONCE, f'nonce="{nonce}"')
    headers = {"Content-Security-Policy": POLICY.format(nonce=nonce)}
    return PageAnswer(200, text.encode(), "text/html; charset=utf-8", headers)


def part(name: str, what: str) -> str:
    """Raises Failure for what would lead to another route of the daemon's."""
    return route_part(unquote(name), what)


def problem(failure: Failure) -> PageAnswer:
    return as_json(STATUSES.get(failure.status, 502), {"error": {"message": failure.message, "hint": failure.hint}})


def as_json(status: int, value: Any) -> PageAnswer:
    return PageAnswer(status, json.dumps(value).encode(), "application/json")


def event(shot: Shot) -> bytes:
    return b"data: " + json.dumps(shot).encode() + b"\n\n"
