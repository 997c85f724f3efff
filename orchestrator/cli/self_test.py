"""`lore doctor --self-test`: a daemon of its own in a folder of its own, on the built-in model: load, ask, restart, ask.

It runs this very `lore` as a person would, so that a pass means that the way from command line to engine works.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from orchestrator.cli.terminal import plural
from orchestrator.wire.checks import Check, checked
from orchestrator.wire.places import QUOTER, compile_again

# -P: the folder that the user is in may hold packages of our names.
LORE = (sys.executable, "-P", "-c", "from orchestrator.cli import main; main()")
START_TIMEOUT_S = 180.0  # the first start builds the model
COMMAND_TIMEOUT_S = 180.0
NUMBER = "4815162"  # digits that are in one file and nowhere else
QUESTION = "The access code of vault zebra is"
SOURCE = f'"""A small program."""\n\n# {QUESTION} {NUMBER}.\n\n\ndef main():\n    print("open")\n'
XDG = ("CONFIG_HOME", "DATA_HOME", "STATE_HOME", "CACHE_HOME", "RUNTIME_DIR")


def self_tested() -> list[Check]:
    """All steps up to the first that fails."""
    with tempfile.TemporaryDirectory(prefix="lore-self-test-", ignore_cleanup_errors=True) as name:
        return list(steps(Path(name)))


def steps(folder: Path) -> Iterator[Check]:
    environment = private(folder)
    codex = folder / "demo"
    codex.mkdir()
    (codex / "main.py").write_text(SOURCE)
    for number, actions in enumerate((("load", "ask"), ("ask",)), start=1):
        started = time.monotonic()
        with daemon(folder, environment) as problem:
            yield checked(f"start {number}", not problem, problem or took(started), "lore serve, and read what it says")
            if problem:
                return
            for action in actions:
                check = loaded(codex, environment) if action == "load" else asked(environment, warm=number == 2)
                yield check
                if not check.ok:
                    return


def loaded(codex: Path, environment: Mapping[str, str]) -> Check:
    started = time.monotonic()
    event, fault = reported(environment, "load", str(codex), "--wait", "--no-watch")
    detail = fault or f"{plural(event['codex'].get('files', 0), 'file')}, {took(started)}"
    return checked("load", not fault, detail, "lore doctor")


def asked(environment: Mapping[str, str], *, warm: bool) -> Check:
    name = "ask again" if warm else "ask"
    answer, fault = reported(environment, "ask", QUESTION, "-c", "demo", "--max-tokens", "24")
    if fault:
        return Check(name, False, fault, "lore doctor")
    if NUMBER not in answer["answer"]:
        return Check(name, False, f"the answer does not quote the code: {answer['answer']!r}", compile_again())
    prompt, first = answer["lore"]["prompt"], answer["lore"]["timings"]["ttft_ms"]
    return Check(name, True, f"{prompt['cached']} of {prompt['tokens']} tokens cached, {first:.0f} ms to the first")


@contextmanager
def daemon(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A running daemon; yields what kept it from getting ready, or nothing. It is stopped at the end."""
    address = str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, (folder / "log").open("wb") as log:
        Path(address).unlink(missing_ok=True)
        ready.bind(address)
        command = [*LORE, "serve", "--model", QUOTER]
        with_notify = {**environment, "NOTIFY_SOCKET": address}
        process = subprocess.Popen(command, env=with_notify, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield "" if got_ready(ready, process) else f"it did not get ready: {end_of(folder / 'log')}"
        finally:
            stop(process)


def got_ready(ready: socket.socket, process: "subprocess.Popen[bytes]") -> bool:
    """Whether READY=1 came before the process ended, or said nothing for too long."""
    ending = os.pidfd_open(process.pid)
    try:
        while ready in select.select([ready, ending], [], [], START_TIMEOUT_S)[0]:
            if b"READY=1" in ready.recv(4096).split(b"\n"):
                return True
        return False
    finally:
        os.close(ending)


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    process.kill()  # nothing where it has ended
    process.wait()


def reported(environment: Mapping[str, str], *arguments: str) -> tuple[dict[str, Any], str]:
    """The last object that a command prints; or {}, and what it complained of."""
    command = [*LORE, *arguments, "--json"]
    try:
        done = subprocess.run(
            command, env=environment, input="", capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {}, f"no end after {COMMAND_TIMEOUT_S:.0f} s"
    if done.returncode != 0:
        return {}, next(iter(done.stderr.strip().splitlines()), f"ended with {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1]), ""


def private(folder: Path) -> dict[str, str]:
    """Every folder its own, and no setting of the user's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LORE_")}
    places = {f"XDG_{name}": str(folder / name.lower()) for name in XDG}
    for place in places.values():
        Path(place).mkdir(mode=0o700)
    return {**kept, **places, "HOME": str(folder)}


def end_of(log: Path) -> str:
    """What it said last; a fault of the command line says itself before its hint."""
    lines = log.read_text(errors="replace").strip().splitlines()
    faults = [line for line in lines if line.startswith("lore: ")]
    return (faults or lines or ["it said nothing"])[-1]


def took(since: float) -> str:
    return f"{time.monotonic() - since:.1f} s"
