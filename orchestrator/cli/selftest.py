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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.cli.doctor import Check, checked
from orchestrator.cli.figures import plural
from orchestrator.wire.version import compile_again

START_TIMEOUT_S = 180.0  # the first start builds the model
COMMAND_TIMEOUT_S = 180.0
NUMBER = "4815162"  # digits that stand in one file and nowhere else
QUESTION = "The access code of vault zebra is"
SOURCE = f'"""A small program."""\n\n# {QUESTION} {NUMBER}.\n\n\ndef main():\n    print("open")\n'
XDG = ("CONFIG_HOME", "DATA_HOME", "STATE_HOME", "CACHE_HOME", "RUNTIME_DIR")


def run() -> list[Check]:
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
    done = lore(environment, "load", str(codex), "--wait", "--no-watch", "--json")
    event = last(done.stdout)
    ok = done.returncode == 0 and event.get("event") == "loaded"
    detail = f"{plural(event['codex'].get('files', 0), 'file')}, {took(started)}" if ok else complaint(done)
    return Check("load", ok, detail, "" if ok else "lore doctor")


def asked(environment: Mapping[str, str], *, warm: bool) -> Check:
    name = "ask again" if warm else "ask"
    done = lore(environment, "ask", QUESTION, "-c", "demo", "--max-tokens", "24", "--json")
    answer = last(done.stdout)
    if done.returncode != 0:
        return Check(name, False, complaint(done), "lore doctor")
    if NUMBER not in answer.get("answer", ""):
        return Check(name, False, f"the answer does not quote the code: {answer.get('answer', '')!r}", compile_again())
    prompt, first = answer["lore"]["prompt"], answer["lore"]["timings"]["ttft_ms"]
    return Check(name, True, f"{prompt['cached']} of {prompt['tokens']} tokens cached, {first:.0f} ms to the first")


@contextmanager
def daemon(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A running daemon; yields what kept it from getting ready, or nothing. It is stopped at the end."""
    address = str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, (folder / "log").open("wb") as log:
        Path(address).unlink(missing_ok=True)
        ready.bind(address)
        command = [
            sys.executable,
            "-P",  # the folder that the user is in may hold packages of our names
            "-c",
            "from orchestrator.cli import main; main()",
            "serve",
            "--model",
            "builtin:quoter",
        ]
        process = subprocess.Popen(
            command, env={**environment, "NOTIFY_SOCKET": address}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            yield "" if got_ready(ready, process) else f"it did not get ready: {end_of(folder / 'log')}"
        finally:
            stop(process)


def got_ready(ready: socket.socket, process: "subprocess.Popen[bytes]") -> bool:
    """Whether READY=1 came before the process ended or the time was over."""
    deadline = time.monotonic() + START_TIMEOUT_S
    ending = os.pidfd_open(process.pid)
    try:
        while (left := deadline - time.monotonic()) > 0:
            awake, _, _ = select.select([ready, ending], [], [], left)
            if ready in awake and b"READY=1" in ready.recv(4096).split(b"\n"):
                return True
            if ready not in awake:
                return False
    finally:
        os.close(ending)
    return False


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def lore(environment: Mapping[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-c", "from orchestrator.cli import main; main()", *arguments]
    try:
        return subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no end after {COMMAND_TIMEOUT_S:.0f} s")


def private(folder: Path) -> dict[str, str]:
    """Every folder its own, and no setting of the user's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LORE_")}
    places = {f"XDG_{name}": str(folder / name.lower()) for name in XDG}
    for place in places.values():
        Path(place).mkdir(mode=0o700)
    return {**kept, **places, "HOME": str(folder)}


def last(text: str) -> dict[str, Any]:
    lines = text.strip().splitlines()
    try:
        value = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def complaint(done: "subprocess.CompletedProcess[str]") -> str:
    words = done.stderr.strip().splitlines()
    return words[0] if words else f"ended with {done.returncode}"


def end_of(log: Path) -> str:
    """What it said last; a fault of the command line says itself before its hint."""
    lines = log.read_text(errors="replace").strip().splitlines()
    faults = [line for line in lines if line.startswith("lore: ")]
    return (faults or lines or ["it said nothing"])[-1]


def took(since: float) -> str:
    return f"{time.monotonic() - since:.1f} s"
