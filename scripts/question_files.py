"""How many files of ours one warm question crosses: in the command line, in the daemon and in the engine's child.

    python scripts/question_files.py [--list]

The script starts a private daemon with Python's profiler hook in every process, loads a small folder, asks twice, and
asks a third time while the hook notes each call of a function of ours. A file counts when at least one of its functions
is called between the question and the end of its answer. An import alone does not count. Background work in that time
counts too, so two runs may differ by one or two files.
"""

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path

import psutil
from llama_sources import ROOT
from private_daemon import PrivateDaemon

PACKAGES = ("orchestrator", "governor", "formatters", "codex")
QUIET_SECONDS = 1.0  # the engine audits its pools half a second after a question, which is no part of the next one
HOOK = """
import os, signal, sys, threading
_seen = set()

def _note(frame, event, _):
    if event == "call":
        code = frame.f_code
        if code.co_flags & 1:  # CO_OPTIMIZED: a function; an import runs modules and bodies of classes
            _seen.add((code.co_filename, code.co_qualname))

def _dump(*_):
    sys.setprofile(None)
    folder = os.environ["QUESTION_FOLDER"]
    rows = [f"{name}\\t{function}" for name, function in list(_seen)]
    place = os.path.join(folder, str(os.getpid()))
    with open(place + ".part", "w") as file:
        file.write("\\n".join(sorted(rows)))
    os.rename(place + ".part", place)
    sys.setprofile(_note)

if "QUESTION_FOLDER" in os.environ:
    threading.setprofile(_note)
    sys.setprofile(_note)
    signal.signal(signal.SIGUSR1, lambda *_: _seen.clear())
    signal.signal(signal.SIGUSR2, _dump)
    if os.environ.get("QUESTION_AT_EXIT"):
        import atexit
        atexit.register(_dump)
"""
FILES = {
    "settings.py": "LIMIT = 40  # rows of a page\n\n\ndef limit() -> int:\n    return LIMIT\n",
    "pages.py": "from settings import limit\n\n\ndef pages(rows: list[str]) -> int:\n    return -(-len(rows) // limit())\n",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the files and how many functions of each were called")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lore-") as folder:
        calls = traced_question(Path(folder))
    everywhere: set[str] = set()
    for name, functions in calls.items():
        files = {file for file, _ in functions}
        everywhere |= files
        print(f"{name}: {len(files)} files, {len(functions)} functions")
        for file in sorted(files) if options.list else ():
            print(f"    {file}  {sum(where == file for where, _ in functions)}")
    print(f"end to end: {len(everywhere)} files")


def traced_question(folder: Path) -> dict[str, set[tuple[str, str]]]:
    """Functions of ours by process, each as (file, name), that a second question calls."""
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(HOOK)
    (folder / "project").mkdir()
    for name, text in FILES.items():
        (folder / "project" / name).write_text(text)
    (folder / "calls").mkdir()
    traced = {"PYTHONPATH": str(folder / "hook"), "QUESTION_FOLDER": str(folder / "calls")}
    daemon = PrivateDaemon(folder, environment=traced).start()
    try:
        plain = {"PYTHONPATH": ""}
        daemon.lore("load", folder / "project", "--wait", environment=plain)
        question = ("ask", "Where is LIMIT used?", "-c", "project", "--max-tokens", "8")
        for _ in range(2):
            daemon.lore(*question, environment=plain)
        time.sleep(QUIET_SECONDS)
        assert daemon.process is not None
        server = psutil.Process(daemon.process.pid)
        (child,) = (one for one in server.children() if any("engine" in word for word in one.cmdline()))
        for process in (server, child):
            process.send_signal(signal.SIGUSR1)
        asked = daemon.lore(*question, environment={"QUESTION_AT_EXIT": "1"})
        assert asked.returncode == 0, asked.stderr
        for process in (server, child):
            process.send_signal(signal.SIGUSR2)
        known = {str(server.pid): "daemon", str(child.pid): "child"}
        while not all((folder / "calls" / pid).exists() for pid in known):
            assert server.is_running()
            os.sched_yield()
        return {known.get(place.name, "command line"): ours(place) for place in sorted((folder / "calls").iterdir())}
    finally:
        daemon.stop()


def ours(place: Path) -> set[tuple[str, str]]:
    rows = [line.split("\t") for line in place.read_text().splitlines()]
    inside = [(Path(file), function) for file, function in rows if Path(file).is_relative_to(ROOT)]
    named = {(str(file.relative_to(ROOT)), function) for file, function in inside}
    return {(file, function) for file, function in named if file.partition("/")[0] in PACKAGES}


if __name__ == "__main__":
    main()
