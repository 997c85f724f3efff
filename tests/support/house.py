"""A small codebase whose answers are known, and a daemon of one's own that is asked about it.

The built-in model continues a question with what stands behind the same words in its context, so an answer is right exactly
when the place that says it was in the prompt.
"""

import json
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from private_daemon import LORE, XDG, PrivateDaemon
from support.forks import ForkedDaemon, begin_command

CODES = {"zebra": "4815162", "walrus": "9273645"}
# Two threads stall beside any busy process; one is slower by half at most.
ONE_THREAD = {"LORE_MODEL__THREADS": "1"}
WHOLE_WINDOW = {"LORE_MODEL__CONTEXT": "131072"}
LOOK_S = 0.05  # between two looks at what happens by itself, and tells nobody

Lore = Mapping[str, Any]


def question(vault: str) -> str:
    return f"The access code of vault {vault} is"


def codebase(folder: Path, codes: Mapping[str, str] = CODES, functions: int = 12) -> Path:
    """One file a vault, its code in line 3, and one file of ordinary functions: about 500 tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    for vault, code in codes.items():
        write_vault(folder, vault, code)
    bodies = [f"def step_{number}(value):\n    return value + {number}\n" for number in range(functions)]
    (folder / "steps.py").write_text("\n\n".join(bodies))
    return folder


def write_vault(folder: Path, vault: str, code: str) -> Path:
    path = folder / f"{vault}.py"
    path.write_text(
        f'"""The vault called {vault}."""\n\n# {question(vault)} {code}.\n\n\ndef unlock():\n    return None\n'
    )
    return path


@contextmanager
def living(models: Path, config: str = "", *, real: bool = False, **options: Any) -> Iterator[PrivateDaemon]:
    """A running daemon, quick on a busy machine, with all of the quoter's window unless one is set. `config` is its
    config.toml; `model` and `environment` as they are. `real`: no fork, for who counts its memory: a fork's holds what
    the others share."""
    with tempfile.TemporaryDirectory(prefix="lore-") as name:
        window = {} if "context" in config or "model" in options else WHOLE_WINDOW
        environment = {**ONE_THREAD, **window, **options.pop("environment", {})}
        kind = PrivateDaemon if real else ForkedDaemon
        daemon = kind(Path(name), models=models, environment=environment, **options)
        configure(daemon, config)
        try:
            yield daemon.start()
        finally:
            daemon.stop()


@contextmanager
def lent(daemon: PrivateDaemon) -> Iterator[PrivateDaemon]:
    """A daemon that one file of tests after another has: it runs, however the file before left it, and nothing is loaded.

    Who counts what it has computed or logged since its start, or sets its configuration, needs one of his own.
    """
    try:
        yield revived(daemon)
    finally:
        with over_socket(revived(daemon)) as http:
            for kind in ("codices", "sessions"):
                for one in http.get(f"/v1/{kind}").json()[kind]:
                    assert http.delete(f"/v1/{kind}/{one['name']}").is_success
        for path in set(daemon.folder.iterdir()) - set(
            map(daemon.folder.joinpath, (*XDG.values(), "run", "daemon.log"))
        ):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def revived(daemon: PrivateDaemon) -> PrivateDaemon:
    """It is started where it ended or was ended."""
    if daemon.process is None or daemon.process.poll() is not None:
        daemon.process = None
        daemon.start()
    return daemon


def configure(daemon: PrivateDaemon, config: str) -> None:
    place = daemon.folder / "config" / "lorekeep"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    (place / "config.toml").write_text(config)


def over_socket(daemon: PrivateDaemon) -> httpx2.Client:
    """HTTP as a program speaks it, over the daemon's socket, without 50 ms for certificates that nothing there shows."""
    transport = httpx2.HTTPTransport(uds=str(daemon.socket), verify=False)
    return httpx2.Client(transport=transport, base_url="http://localhost", timeout=100)


def reply(daemon: PrivateDaemon, route: str, asked: Mapping[str, Any] | None = None) -> Any:
    """What the daemon answers to a program: to a GET, or to a POST of `asked`. Far quicker than a command's process."""
    with over_socket(daemon) as http:
        answer = http.get(route) if asked is None else http.post(route, json=dict(asked))
    assert answer.is_success, answer.text
    return answer.json()


def shown(daemon: PrivateDaemon, name: str) -> Any:
    """A codex as the daemon reports it."""
    return reply(daemon, f"/v1/codices/{name}")["codex"]


def remembered(daemon: PrivateDaemon, *options: str) -> Sequence[Any]:
    """Its memories as `lore memory list` has them."""
    listed = daemon.json("memory", "list", *options)["memories"]
    assert isinstance(listed, list)
    return listed


def hits(daemon: PrivateDaemon, query: str, codex: str, most: int = 10) -> Sequence[Any]:
    """What a search finds."""
    found = reply(daemon, "/v1/search", {"query": query, "codex": codex, "n": most})["hits"]
    assert isinstance(found, list)
    return found


def ask(daemon: PrivateDaemon, vault: str, **lore: Any) -> Any:
    """The answer to that vault's question, in a new session unless one is named; `lore` holds the request's options.

    A program asks, with the object that `lore ask --json` prints: a command's process for each question takes as long
    as the answer.
    """
    options = {"session": "", "client": {"cwd": str(daemon.folder)}, **lore}
    if options.get("record") is False:
        del options["session"]
    body = {"model": "lore", "messages": [{"role": "user", "content": question(vault)}], "max_completion_tokens": 10}
    completion = reply(daemon, "/v1/chat/completions", {**body, "lore": options})
    (choice,) = completion["choices"]
    rest = {"finish_reason": choice["finish_reason"], "lore": completion["lore"], "usage": completion["usage"]}
    return {"answer": choice["message"]["content"], **rest}


def blocks(lore: Lore) -> dict[str, Lore]:
    return {block["kind"]: block for block in lore["blocks"]}


def cached_whole(lore: Lore, *kinds: str) -> bool:
    return all(blocks(lore)[kind]["cached"] == blocks(lore)[kind]["tokens"] > 0 for kind in kinds)


def counters(daemon: PrivateDaemon) -> Mapping[str, float]:
    """The engine's counters."""
    found = reply(daemon, "/v1/status")["engine"]["cache"]
    assert isinstance(found, dict)
    return found


def begun(daemon: PrivateDaemon, *arguments: str | Path) -> "subprocess.Popen[str]":
    """A `lore` command that is left running, in a group of its own, so that it can be interrupted alone."""
    return begin_command([str(LORE), *map(str, arguments)], daemon.environment)


def first_words(process: "subprocess.Popen[str]", timeout_s: float = 60.0) -> str:
    """What a running command has written first to its standard output."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], timeout_s)
    assert ready, "the command said nothing"
    return process.stdout.read(1)


def events(text: str) -> Sequence[Any]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def until(true: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Returns when the running daemon says so. It has the processor to itself between two looks."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"not so within {timeout_s:.0f} s"
        select.select((), (), (), LOOK_S)


def engine_child(daemon: PrivateDaemon) -> int:
    """The process that holds the model."""
    assert daemon.process is not None
    here = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children")
    found = [
        pid for pid in here.read_text().split() if b"orchestrator.engine" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    (child,) = found
    return int(child)
