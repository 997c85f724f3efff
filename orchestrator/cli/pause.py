"""`lore pause` and `lore resume`: gives the model's memory to other programs, and takes it back.

With a command the pause lasts as long as the connection: however this process ends, the daemon notices. A daemon that ends
meanwhile keeps the memory free until the connection is made again.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon, Failure
from orchestrator.cli.terminal import Report, clear_progress, note, plural, progress, result, result_json
from orchestrator.wire import faults

ROUTE = "/v1/pause"
AGAIN_S = 1.0  # between attempts to reach a daemon that has ended
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells and env(1) have it
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
Duration = Annotated[str | None, given.option("--for T", "come back after 2h, 30min or 90 seconds")]
Command = Annotated[
    list[str] | None, typer.Argument(metavar="[-- CMD...]", help="pause while this command runs; returns its status")
]


def pause(
    command: Command = None,
    duration: Duration = None,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Takes the model out of the memory, until `lore resume`, for a time, or while a command runs."""
    if command and as_json:
        raise Failure(faults.USAGE, "--json has no meaning with a command, whose output is its own", "leave one out")
    if command:
        raise typer.Exit(while_paused(command, duration, socket))
    progress("waiting for running answers")
    paused = Daemon(socket).call("POST", ROUTE, body_of("lore pause", duration))
    clear_progress()
    if as_json:
        result_json(paused)
    else:
        result(paused_words(paused["away"]))


def resume(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Ends all pauses and loads the model again."""
    resumed = Daemon(socket).call("POST", "/v1/resume")
    if as_json:
        result_json(resumed)
    else:
        ended = resumed["ended"]
        words = f"ended {plural(len(ended), 'pause')} ({', '.join(ended)})" if ended else "nothing was paused"
        result(f"{words}; lore status shows when the model is loaded")


def body_of(why: str, duration: str | None, **more: Any) -> dict[str, Any]:
    return {"why": why, **({"for": duration} if duration is not None else {}), **more}


def paused_words(away: Report | None) -> str:
    if away is None:
        return "the pause has ended already"
    until = time.strftime(" until %a %H:%M", time.localtime(away["until"])) if away.get("until") else ""
    return f"the model is out of the memory{until}; lore resume brings it back"


# -- while a command runs


def while_paused(command: list[str], duration: str | None, socket: str | None) -> int:
    """The command's exit status, as a shell has it. Raises Failure where nothing can be paused, or it cannot be started."""
    program = shutil.which(command[0])
    if program is None:
        found = os.path.exists(command[0])  # noqa: PTH110 - as it was typed
        status, why = (NOT_EXECUTABLE, "may not be run") if found else (NOT_FOUND, "is no command")
        raise Failure(status, f"{shlex.quote(command[0])} {why}; nothing was paused", "lore pause -- CMD...")
    held = HeldPause(socket, f"lore pause -- {os.path.basename(command[0])}", duration)  # noqa: PTH119
    held.begin()
    with passed_on() as pass_to:
        try:
            process = subprocess.Popen(command, executable=program)
        except OSError as error:
            raise Failure(
                NOT_EXECUTABLE, f"{command[0]} was not started: {error.strerror}", "the model is back"
            ) from error
        pass_to(process)
        held.keep()
        status = process.wait()
    return 128 - status if status < 0 else status


class HeldPause:
    """A pause that lasts as long as this process. `begin` returns when the memory is free, `keep` at once."""

    def __init__(self, socket: str | None, why: str, duration: str | None) -> None:
        self._socket = socket
        self._body = body_of(why, duration, hold=True)
        self._events: Iterator[Any] = iter(())
        self._until: float | None = None

    def begin(self) -> None:
        """Raises Failure."""
        progress("waiting for running answers")
        self._events = self._followed()
        for event in self._events:
            if event["event"] != "leaving":
                break
        clear_progress()

    def keep(self) -> None:
        threading.Thread(target=self._keep, name="pause", daemon=True).start()

    def _followed(self) -> Iterator[Any]:
        for event in Daemon(self._socket).stream(ROUTE, self._body):
            if event.data["name"]:
                self._body["name"] = event.data["name"]
                self._until = event.data["away"] and event.data["away"]["until"]
            yield event.data

    def _keep(self) -> None:
        """Until the pause has ended. Without a daemon one is waited for."""
        while True:
            try:
                for event in self._events:
                    if event["event"] == "back":
                        note("lore: the pause has ended, and the model is loaded again beside the command")
                        return
            except Failure as failure:
                if failure.status == faults.NOT_PERMITTED:
                    return
            if self._until is not None:
                self._body["for"] = max(0.001, self._until - time.time())
            time.sleep(AGAIN_S)
            self._events = self._followed()


@contextmanager
def passed_on() -> Iterator[Callable[["subprocess.Popen[bytes]"], None]]:
    """Signals reach the command while the block runs; one that comes before it is there ends this process as usual."""
    before = {number: signal.getsignal(number) for number in (*PASSED_ON, signal.SIGINT)}

    def pass_to(process: "subprocess.Popen[bytes]") -> None:
        for number in PASSED_ON:
            signal.signal(number, lambda received, _: process.send_signal(received))
        signal.signal(signal.SIGINT, lambda *_: None)  # a terminal sends it to the command too, whose end decides ours

    try:
        yield pass_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.stdout.flush()
