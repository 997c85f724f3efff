"""What `lore dash` serves: the page, pictures of now, and turns and memories as the daemon has them.

    browser ──HTTP, token──▶ loopback ──▶ Site ──▶ Live ◀── Feed   that of `lore top`: pictures when something changed
                                           └─────▶ client         one request of the daemon's for each of the page's

It only shows: nothing that the page can ask for changes anything. Of the daemon nothing is asked while no page listens. A
page that reads slowly misses pictures, and gets the newest. Where the daemon is away or hangs, a shot and each answer say
so soon, and the next shot follows when it is back.
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

from orchestrator.cli.client import HANGS_S, Daemon, Failure, route_part
from orchestrator.cli.loopback import Loopback, PageAnswer, PageRequest, Stream
from orchestrator.cli.terminal import note, result
from orchestrator.cli.top_feed import Feed, Known
from orchestrator.wire import faults
from orchestrator.wire.picture import files_of
from orchestrator.wire.places import VERSION

PAGE = Path(__file__).with_name("dash.html")
TOKEN_BYTES, NONCE_BYTES = 24, 16
NONCE = 'nonce=""'  # stands in the page where its one style and its one script get theirs
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
ROWS = tuple(faults.CODES[code] for code in ("not_found", "not_permitted", "invalid_request"))
STATUSES = {faults.UNREACHABLE: 503} | {row.exit_status: row.status for row in ROWS}
ALIVE_S = 15.0  # between two signs of life to a page: one that has left is noticed by them

Shot = Mapping[str, Any]
T = TypeVar("T")


async def serve(port: int, socket: str | None) -> None:
    """Never returns. Raises Failure where the port is taken."""
    asyncio.get_running_loop().set_exception_handler(complain)
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


def complain(_: asyncio.AbstractEventLoop, told: Mapping[str, Any]) -> None:
    """Of what nobody awaits. Pages that are open when Ctrl-C ends it are cancelled: asyncio of Python 3.11 reports that."""
    if not isinstance(fault := told.get("exception"), asyncio.CancelledError):
        note(f"lore dash: {fault!r}")


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
    """What the daemon at `socket` does now, for all pages that listen. For one event loop."""

    def __init__(self, socket: str | None) -> None:
        self._socket = socket
        self._shot: Shot = {}
        self._number = 0
        self._new = asyncio.Condition()
        self._listeners = 0
        self._feed: Feed | None = None

    async def shots(self) -> AsyncIterator[bytes]:
        """Server-sent events: the newest shot, then each that differs."""
        self._listeners += 1
        self._feed = self._feed or self._begun()
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
            if not self._listeners and self._feed:
                self._feed.stop()
                self._feed = None

    def _begun(self) -> Feed:
        loop = asyncio.get_running_loop()

        def tell(known: Known | Failure) -> None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                asyncio.run_coroutine_threadsafe(self._publish(shot_of(known)), loop)

        feed = Feed(self._socket, Known(), tell)
        feed.start()
        feed.refresh()
        return feed

    async def _publish(self, shot: Shot) -> None:
        if shot != self._shot or not self._number:
            async with self._new:
                self._shot = shot
                self._number += 1
                self._new.notify_all()


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
    """Raises Failure, also where the daemon hangs: only so many requests are answered at once."""
    daemon = Daemon(socket, quiet=True, silent_s=HANGS_S)
    try:
        return daemon.call("GET", route)
    except HTTPException as error:
        raise not_ours(error) from error
    finally:
        daemon.connection.close()


def not_ours(error: Exception) -> Failure:
    """What an answer is that cannot be read: of a daemon of another version, or of one that ended in the middle of it."""
    return Failure(faults.FAILED, f"the daemon's answer cannot be used ({error!r})", "`lore doctor` looks into it")


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


def shot_of(known: Known | Failure) -> Shot:
    """`lore`: this command's version, for a page that sees the daemon's."""
    if isinstance(known, Failure):
        return {"away": known.message, "hint": known.hint}
    return {"picture": asdict(known.picture), "lore": VERSION}


def event(shot: Shot) -> bytes:
    return b"data: " + json.dumps(shot).encode() + b"\n\n"
