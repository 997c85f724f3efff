"""Asks a daemon of its own whatever its OpenAPI document allows, and what it does not: `make fuzz`, SECONDS=600 for longer.

Schemathesis makes the requests, over TCP with a token, and holds each reply against the document: no status that is not
declared, no 5xx but 503, no body of another shape. At the end the daemon lives, its log has no traceback, and the engine's
accounts balance. Schemathesis has an environment of its own under build/: it brings 40 distributions that nobody else
needs.
"""

import argparse
import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from llama_sources import ROOT, build_cache, say
from private_daemon import PrivateDaemon, free_port

TOOL = "schemathesis>=4.32,<5"
PLACE = ROOT / "build" / "fuzz"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,unsupported_method,allow_header_conformance,ignored_auth"
)
# A model that is paused, loading or too slow for the request's own time is no fault.
CONFIG = """\
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "503"]
"""
ENDLESS = "/v1/events"
ASKING = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/plan", "/v1/search", "/v1/symbols")
# First a third of the time requests that may be answered, while all that is asked about is still there; then whatever.
PASSES = (
    (1 / 3, ("--mode", "positive", "--phases", "fuzzing", *(f"--include-path={path}" for path in ASKING))),
    (2 / 3, ("--exclude-path", ENDLESS)),
)
REQUEST_S = 60  # an answer that fills the window, on a busy machine: in 20 s two did not end
GUEST = ["query", "search", "codex:read"]  # of one who may only ask
SESSION = "talk"  # there is one of that name
QUESTION = "def unlock(code"  # the model goes on with what stands behind it
COUNTED = ("lorekeep_turns_total", "lorekeep_unanswered_turns_total", "lorekeep_texts_total", "lorekeep_refusals_total")
RESUME_S = 0.5  # a pause that a request began lasts no longer


def main() -> None:
    options = arguments()
    install()
    with tempfile.TemporaryDirectory(prefix="lore-fuzz-") as name:
        folder = Path(name)
        with running(folder, "guest" if options.guest else "owner") as (daemon, url, token):
            begun = time.monotonic()
            status = max(fuzz(folder, url, token, options, some) for some in PASSES)
            say(f"{time.monotonic() - begun:.0f} s; of them all, what got behind the checks of its request:")
            say(reached(daemon))
            faults = list(found(daemon))
    for fault in faults:
        say(f"FAULT {fault}")
    raise SystemExit(1 if faults else status)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="how long (default 60)")
    parser.add_argument(
        "--examples", type=int, default=50, help="requests of each kind to a route at a time (default 50)"
    )
    parser.add_argument("--guest", action="store_true", help=f"with a token for {', '.join(GUEST)} alone")
    parser.add_argument("--seed", type=int, help="of an earlier run, to repeat it")
    parser.add_argument("more", nargs="*", help="options of schemathesis, behind --")
    return parser.parse_args()


def install() -> None:
    if (PLACE / "bin" / "st").exists():
        return
    say(f"Installing {TOOL} into {PLACE.relative_to(ROOT)}.")
    venv.create(PLACE, with_pip=True)
    command = [str(PLACE / "bin" / "python"), "-P", "-m", "pip", "install", "-qq", "--disable-pip-version-check", TOOL]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(f"{TOOL} could not be installed; pip's words are above")


# -- the daemon


@contextmanager
def running(folder: Path, sigil: str) -> Iterator[tuple[PrivateDaemon, str, str]]:
    """The daemon with one codex, its address and a token of this sigil. Pauses end by themselves, as nobody else is
    there."""
    token, port = secrets.token_urlsafe(32), free_port()
    daemon = PrivateDaemon(folder, models=build_cache() / "models", environment={"LORE_MODEL__CONTEXT": "8192"})
    place = folder / "config" / "lorekeep"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256(token.encode()).hexdigest()
    guest = f'[sigils.guest]\nscopes = {json.dumps(GUEST)}\ncodices = ["vaults"]\n'
    (place / "config.toml").write_text(f'{guest}[tokens.fuzz]\nsha256 = "{digest}"\nsigil = "{sigil}"\n')
    source = folder / "vaults"
    source.mkdir()
    (source / "zebra.py").write_text(
        '"""A vault."""\n\n\ndef unlock(code: str) -> bool:\n    return code == "4815162"\n'
    )
    ended = threading.Event()
    try:
        daemon.start("--tcp", f"127.0.0.1:{port}")
        daemon.json("load", source)
        daemon.json("ask", QUESTION, "-s", SESSION, "--max-tokens", "4")
        daemon.json("memory", "add", "The vault called zebra is locked.")
        threading.Thread(target=resuming, args=(daemon, ended), daemon=True).start()
        yield daemon, f"http://127.0.0.1:{port}", token
    finally:
        ended.set()
        daemon.stop()


def asked(daemon: PrivateDaemon, method: str, route: str) -> Any:
    from orchestrator.cli.client import Daemon

    return Daemon(str(daemon.socket)).call(method, route)


def resuming(daemon: PrivateDaemon, ended: threading.Event) -> None:
    from orchestrator.cli.client import Failure

    while not ended.wait(RESUME_S):
        with suppress(Failure):  # a daemon that ended is what `found` says
            asked(daemon, "POST", "/v1/resume")


# -- the requests


def fuzz(folder: Path, url: str, token: str, options: argparse.Namespace, some: tuple[float, tuple[str, ...]]) -> int:
    """One pass: a share of the time, and what it is of. The status of schemathesis."""
    share, chosen = some
    (folder / "schemathesis.toml").write_text(CONFIG)
    (folder / "openapi.json").write_text(json.dumps(with_names(document(url, token), names(folder))))
    command = [
        *("nice", str(PLACE / "bin" / "st"), "run", "openapi.json", "--url", url, "--no-color"),
        *("--header", f"Authorization: Bearer {token}", "--checks", CHECKS, *chosen),
        *("--max-time", str(round(share * options.seconds)), "--max-examples", str(options.examples)),
        *("--continue-on-failure", "--request-timeout", str(REQUEST_S)),
        *("--suppress-health-check", "all", "--generation-database", "none"),
        *(("--seed", str(options.seed)) if options.seed is not None else ()),
        *options.more,
    ]
    return subprocess.run(command, cwd=folder, env=os.environ, stdin=subprocess.DEVNULL, check=False).returncode


def document(url: str, token: str) -> Any:
    """As the daemon serves it."""
    asking = urllib.request.Request(f"{url}/openapi.json", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asking) as answer:
        return json.load(answer)


def names(folder: Path) -> dict[str, list[Any]]:
    """Of what there is, by the field that may name it: chance alone never gets behind a name that nobody has, nor makes
    a conversation in which roles and calls follow one another."""
    codex, identity = "vaults", "lorekeep"
    return {
        "name": [codex, SESSION, identity, "last", "traces", "cache", "../vaults", "\0"],
        "to": ["last"],
        "codex": [codex, "none"],
        "session": ["", SESSION],
        "identity": [identity],
        "model": ["lore", f"lore/{codex}", "builtin:quoter"],
        "role": ["user", "assistant", "system", "tool"],
        "content": [QUESTION],
        "messages": conversations(),
        "input": [QUESTION],
        "prompt": [QUESTION],
        "query": ["unlock", QUESTION],
        "max_tokens": [1, 4],
        "max_completion_tokens": [1, 4],
        "path": [str(folder / "vaults"), "zebra.py", f"{folder}/vaults/../vaults"],
        "kind": ["fact", "decision"],
        "do": ["confirm", "retire"],
        "strategy": ["CAG", "RAG"],
        "previous_response_id": ["resp_1"],
    }


def conversations() -> list[Any]:
    asked, said = {"role": "user", "content": QUESTION}, {"role": "assistant", "content": '== "4815162"'}
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "locked"}
    called = [asked, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    return [[asked], [{"role": "system", "content": "Be short."}, asked, said, asked], called]


def with_names(node: Any, known: dict[str, list[Any]]) -> Any:
    """The document in which a field may hold also one of the `known` values of its name."""
    if isinstance(node, list):
        return [with_names(one, known) for one in node]
    if not isinstance(node, dict):
        return node
    found = {key: with_names(value, known) for key, value in node.items()}
    if found.get("in") in ("path", "query") and found["name"] in known:
        found["schema"] = or_one_of(found["schema"], known[found["name"]])
    if isinstance(found.get("properties"), dict):
        fields = found["properties"]
        found["properties"] = {
            key: or_one_of(value, known[key]) if key in known else value for key, value in fields.items()
        }
    return found


def or_one_of(schema: Any, values: list[Any]) -> Any:
    return {"anyOf": [{"enum": values}, schema]}


def reached(daemon: PrivateDaemon) -> str:
    """What the daemon counted of turns, texts and refusals."""
    from orchestrator.cli.client import Daemon

    lines = Daemon(str(daemon.socket)).download("/metrics").read().decode().splitlines()
    return "\n".join(line for line in lines if line.startswith(COUNTED) and not line.endswith(" 0"))


def found(daemon: PrivateDaemon) -> Iterator[str]:
    """What is wrong with the daemon after all that."""
    log = daemon.log.read_text(errors="replace")
    if at := log.find("Traceback") + 1:
        yield f"a traceback in the log:\n{log[max(0, at - 500) : at + 4000]}"
    assert daemon.process is not None
    if daemon.process.poll() is not None:
        yield f"the daemon ended with {daemon.process.returncode}:\n{daemon.log_end()}"
        return
    faults, engine = asked(daemon, "GET", "/v1/stats/cache")["faults"], asked(daemon, "GET", "/v1/status")["engine"]
    if faults["broken_pools"] or faults["failed_steps"]:
        yield f"the engine's accounts: {faults}"
    if engine["restarts"]:
        yield f"the engine was started again {engine['restarts']} times"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
