"""The daemon's process: folders, socket, signals, systemd; then the program until it is told to stop."""

import asyncio
import logging
import os
import signal
from contextlib import ExitStack

from orchestrator import bootstrap, instance
from orchestrator.api.app import create_app
from orchestrator.api.server import serve
from orchestrator.api.sigils import Sigils
from orchestrator.api.sockets import Listener, open_all, tcp_hosts
from orchestrator.codices.faults import translated
from orchestrator.logs import set_up
from orchestrator.model.chat_model import arriving, why_waiting
from orchestrator.model.host import model_of
from orchestrator.running.program import Program
from orchestrator.running.switching import Switch
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths
from orchestrator.systemd import Notifier
from orchestrator.wire.version import VERSION

log = logging.getLogger("lorekeep")


def run(settings: Settings) -> int:
    """Runs until SIGTERM or Ctrl-C; the exit status. Raises LoreError for what keeps it from starting."""
    set_up(settings.log.level, os.environ)
    os.umask(0o077)  # what is written holds the user's code: also what a library writes is the user's alone
    paths = Paths.of(os.environ)
    paths.prepare()
    path = settings.serve.socket or str(paths.socket)
    # The socket is taken first: who starts a daemon twice is told of the one that serves there.
    listeners = open_all(os.environ, type(paths.socket)(path), settings.serve.socket_group, settings.serve.tcp)
    with ExitStack() as undo:
        for listener in listeners:
            undo.callback(listener.close)
        # Held until the engine has written its last, long after the sockets are closed. Damage may show late.
        with instance.held(paths, path), translated():
            program = bootstrap.build(settings, paths)
            undo.pop_all()
            asyncio.run(live(program, settings, paths, listeners))
    return 0


async def live(program: Program, settings: Settings, paths: Paths, listeners: list[Listener]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    notifier = Notifier.of(os.environ)
    app = create_app(
        program,
        Sigils.of(settings, os.geteuid()),
        version=VERSION,
        max_body=settings.serve.max_body,
        hosts=tcp_hosts(settings.serve.tcp),
        queue=settings.serve.queue,
        stopping=stop,
    )
    switch = Switch(
        settings,
        app.state.gate,
        check=lambda wanted: model_of(wanted, paths),
        build=lambda wanted: bootstrap.build(wanted, paths),
        stands=lambda now: setattr(app.state, "service", now),
    )
    await switch.start(program)
    telling = [
        asyncio.create_task(tell_ready(program, notifier), name="ready"),
        asyncio.create_task(notifier.keep_alive(), name="watchdog"),
    ]
    log.info("listening", extra={"fields": {"sockets": [str(listener.socket.getsockname()) for listener in listeners]}})
    try:
        await serve(app, listeners, stop, grace_s=settings.serve.shutdown_grace)
    finally:
        notifier.stopping()
        for task in telling:
            task.cancel()
        await asyncio.gather(*telling, return_exceptions=True)
        await switch.stop()


async def tell_ready(program: Program, notifier: Notifier) -> None:
    """systemd hears READY when an answer can be given, or when it is known that none will be."""
    async for percent in arriving(program.voice(), program.client):
        notifier.status(why_waiting(program.client))
        if percent:  # it moves: systemd need not think that it hangs
            notifier.starting()
    _, why = await program.ready()
    notifier.status(why or "ready")
    notifier.ready()
