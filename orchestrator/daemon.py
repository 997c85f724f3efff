"""The daemon's process: folders, socket, signals, systemd; then the program until it is told to stop.

The engine's child is started first: it imports and loads beside what the daemon itself imports. What is imported here is
what that needs; everything else comes in `live`.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from orchestrator import instance
from orchestrator.api.sockets import Listener, open_all, tcp_hosts
from orchestrator.logs import set_up
from orchestrator.model.conditions import Sizes
from orchestrator.model.host import host_of, model_of
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths
from orchestrator.systemd import Notifier, prefill_words
from orchestrator.wire.places import VERSION

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from orchestrator.api.server import OwnServer
    from orchestrator.bootstrap import Exchange
    from orchestrator.model_switch import ModelSwitch
    from orchestrator.program import Program

log = logging.getLogger("lorekeep")

STATUS_SECONDS = 2.0  # between two looks at what systemd is told
LOOK_SECONDS = 1.0  # between two looks at whether anybody asks
# That a thread keeps the interpreter while the event loop waits for it. An answer takes it some twenty times: beside files
# that are taken in it would wait for Python's own 5 ms each time.
SWITCH_SECONDS = 0.0005


def run(settings: Settings) -> None:
    """Runs until SIGTERM or Ctrl-C. Raises LoreError for what keeps it from starting."""
    set_up(settings.log.level, os.environ)
    sys.setswitchinterval(SWITCH_SECONDS)
    os.umask(0o077)  # what is written holds the user's code: also what a library writes is the user's alone
    paths = Paths.of(os.environ)
    paths.prepare()
    path = settings.serve.socket or str(paths.socket)
    # The socket is taken first: who starts a daemon twice is told of the one that serves there.
    listeners = open_all(os.environ, type(paths.socket)(path), settings.serve.socket_group, settings.serve.tcp)
    with ExitStack() as unless_served:
        for listener in listeners:
            unless_served.callback(listener.close)
        # Held until the engine has written its last, long after the sockets are closed.
        with instance.held(paths, path):
            asyncio.run(live(settings, paths, listeners, unless_served))
    log.info("stopped")


async def live(settings: Settings, paths: Paths, listeners: list[Listener], unless_served: ExitStack) -> None:
    """Raises LoreError for what keeps it from starting. `unless_served` closes the listeners where serving does not."""
    stop = stopped_by_signals()
    notifier = Notifier.of(os.environ)
    model = " and ".join(settings.engine.url) or settings.model.path or "the built-in model"
    tell(f"lore: starting at {where(listeners)}, with {model}")

    async def build(wanted: Settings) -> "Program":
        return await built(wanted, paths, lambda setting: switch.to(setting))

    program = await build(settings)
    from orchestrator.api.server import OwnServer, serve
    from orchestrator.errors import translated

    app = app_of(settings, program, stop)
    server = OwnServer(app, listeners, stop, grace_s=settings.serve.shutdown_grace)
    switch = switch_of(settings, paths, program, app, build)
    with translated():  # damage within a database shows when its rows are read
        await program.start()
    log.debug("listening", extra={"fields": {"sockets": where(listeners)}})
    unless_served.pop_all()
    gc.freeze()  # what was imported and built stays: 0.1 s and more, in which nothing else runs, to look it through again
    try:
        async with reported(lambda: app.state.service, notifier), ended_when_idle(settings, app, server):
            await serve(server)
    finally:
        await switch.stop()


def stopped_by_signals() -> asyncio.Event:
    """Set by SIGTERM and Ctrl-C."""
    stop = asyncio.Event()

    def end(number: signal.Signals) -> None:
        log.info("stopping", extra={"fields": {"signal": number.name}})
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    return stop


async def built(settings: Settings, paths: Paths, exchange: "Exchange") -> "Program":
    """A program whose engine is being loaded already. Raises LoreError, and leaves no engine behind then."""
    host = host_of(settings, paths, partial(sizes_before, paths))
    host.yielding.begin()
    try:
        await asyncio.sleep(0)  # the child's process is there after it; its imports go on beside ours
        from orchestrator import bootstrap

        return bootstrap.build(settings, paths, host, exchange)
    except BaseException:
        await host.client.stop()
        raise


def sizes_before(paths: Paths) -> Sizes:
    """Imported where they are asked for: without a GPU nobody does."""
    from orchestrator.codices.state_store import kept_sizes

    return kept_sizes(paths.codices)


def app_of(settings: Settings, program: "Program", stop: asyncio.Event) -> "Starlette":
    """The routes, in front of the program."""
    from orchestrator.api.app import create_app
    from orchestrator.api.sigils import Sigils

    return create_app(
        program,
        Sigils.of(settings, os.geteuid()),
        version=VERSION,
        max_body=settings.serve.max_body,
        hosts=tcp_hosts(settings.serve.tcp),
        queue=settings.serve.queue,
        unknown_model=settings.clients.unknown_model,
        move_volatile=settings.clients.move_volatile,
        stopping=stop,
    )


def switch_of(
    settings: Settings,
    paths: Paths,
    program: "Program",
    app: "Starlette",
    build: Callable[[Settings], Awaitable["Program"]],
) -> "ModelSwitch":
    """What puts a program with another model behind the same routes."""
    from orchestrator.model_switch import ModelSwitch

    return ModelSwitch(
        settings,
        program,
        app.state.gate,
        check=lambda wanted: model_of(wanted, paths),
        build=build,
        serve=lambda now: setattr(app.state, "service", now),
    )


@asynccontextmanager
async def reported(program: Callable[[], "Program"], notifier: Notifier) -> AsyncIterator[None]:
    """Reports to systemd while it serves, and then that it stops."""
    reporting = [
        asyncio.create_task(tell_state(program, notifier), name="ready"),
        asyncio.create_task(notifier.keep_alive(), name="watchdog"),
    ]
    try:
        yield
    finally:
        notifier.stopping()
        for task in reporting:
            task.cancel()
        await asyncio.gather(*reporting, return_exceptions=True)


async def tell_state(program: Callable[[], "Program"], notifier: Notifier) -> None:
    """Once it is ready, systemd hears why it is not: a pause, an engine that is started again."""
    await tell_ready(program(), notifier)
    told: str | None = None
    while True:
        _, why = await program().ready()
        words = why or computing(program()) or "ready"
        if words != told:
            told = words
            notifier.status(words)
        await asyncio.sleep(STATUS_SECONDS)


def computing(program: "Program") -> str:
    """How far the prefixes of codices are that are computed now; '' where none is. Whoever may ask systemd reads it: no
    codex is named."""
    floors = program.reports.floors
    found = [one for codex in floors.codices() if (one := floors.figures(codex)) is not None and one.done is not None]
    done, tokens = sum(one.done or 0 for one in found), sum(one.tokens for one in found)
    left = None if any(one.left_s is None for one in found) else sum(one.left_s or 0.0 for one in found)
    return prefill_words(len(found), done, tokens, left)


@asynccontextmanager
async def ended_when_idle(settings: Settings, app: "Starlette", server: "OwnServer") -> AsyncIterator[None]:
    """Stops the server once nobody has asked for `serve.idle_exit`, where systemd starts the next daemon: who connects from
    then on is not accepted, and waits in the socket's queue, which is systemd's. TCP is nobody's then, so a daemon that
    listens there stays."""
    idle_s = settings.serve.idle_exit
    if not idle_s or not all(one.is_systemds for one in server.listeners):
        yield
        return
    watching = asyncio.create_task(when_idle(idle_s, lambda: work_of(app, server), server.stop), name="idle exit")
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def work_of(app: "Starlette", server: "OwnServer") -> tuple[bool, int]:
    """Whether somebody is served or may ask on an open connection, or something is computed or loaded; and how many
    requests there ever were."""
    program: Program = app.state.service
    snapshot, floors = program.client.snapshot, program.reports.floors
    computed = any(floors.progress(codex) for codex in floors.codices())
    engine = snapshot.running or snapshot.waiting
    waited = not program.model_ready().done()
    work = server.asking or app.state.gate.inside or engine or computed or waited or program.loads.names()
    return bool(work), app.state.gate.entered


async def when_idle(idle_s: float, work: Callable[[], tuple[bool, int]], stop: asyncio.Event) -> None:
    """By the event loop's clock, which no change of the wall clock moves. Nothing happens between the last look and the
    end: whoever was accepted before it is seen by it."""
    clock = asyncio.get_running_loop().time
    since, before = clock(), -1
    while clock() < since + idle_s:
        await asyncio.sleep(min(LOOK_SECONDS, idle_s / 2))
        at_work, entered = work()
        if at_work or entered != before:
            since, before = clock(), entered
    log.info("stopping", extra={"fields": {"idle_s": idle_s}})
    stop.set()


async def tell_ready(program: "Program", notifier: Notifier) -> None:
    """systemd hears READY when an answer can be given, or when it is known that none will be, or not before a pause ends; a
    person hears it too."""
    from orchestrator.model.chat_model import arriving, why_waiting

    async for percent in arriving(program.model_ready(), program.client):
        notifier.status(why_waiting(program.client))
        if program.yielding.gone:
            break
        if percent:  # it moves: systemd need not think that it hangs
            notifier.starting()
    _, why = await program.ready()
    notifier.status(why or "ready")
    notifier.ready()
    if not why:
        tell('lore: ready. In another terminal: lore load DIRECTORY, then lore ask "QUESTION"; Ctrl-C ends it')


# -- what a person at a terminal sees; elsewhere the log has it


def tell(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{line}\n")
    else:
        log.info(line.removeprefix("lore: "))


def where(listeners: list[Listener]) -> str:
    names = [str(one.path) if one.path else "{}:{}".format(*one.socket.getsockname()[:2]) for one in listeners]
    return " and ".join(names)
