"""`make demo`: two real codebases that are not ours, loaded, asked and asked again; everything by the `lore` command.

The built-in model continues the words that it is given with what follows them in its context. So a question here is the
beginning of a sentence that stands in the codebase once, and the answer is right when it is the rest of that sentence.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo_picture import picture
from demo_quotes import Quote, quotes
from llama_sources import ROOT, unpack
from private_daemon import DaemonError, PrivateDaemon

# Versions are pinned so that the demo asks the same questions next year.
SMALL = ("blinker", "1.9.0", "src")
LARGE = ("flask", "3.1.3", ".")
ANSWER_TOKENS = "24"
# As a small GPU would leave it: the small codebase fits, the large one does not, and a CPU is done in time.
WINDOW = {"LORE_MODEL__CONTEXT": "12288"}


def main() -> None:
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the daemon is stopped then too
    with tempfile.TemporaryDirectory(prefix="lore-demo-") as folder:
        place = Path(folder)
        small, large = codebases(place)
        daemon = PrivateDaemon(place / "daemon", environment=WINDOW)
        try:
            tell(daemon, small, large)
        except DaemonError as error:
            raise SystemExit(f"{error}\n\nThe daemon's log ends:\n{daemon.log_end()}") from error
        finally:
            daemon.stop()
    say(f"\nDone in {time.monotonic() - begun:.0f} s; the daemon is stopped and its folders are gone.")
    say(on_path(Path(sys.prefix), os.environ.get("PATH", "")))


def on_path(environment: Path, path: str) -> str:
    """What comes next, and what makes `lore` a command of this shell where it is none."""
    here = str(environment / "bin") in path.split(os.pathsep)
    return "Yours: lore serve" if here else f"Yours: . {environment}/bin/activate && lore serve"


def tell(daemon: PrivateDaemon, small: Path, large: Path) -> None:
    chapter("A daemon on a private socket, with the built-in quoting model")
    daemon.start()
    say(f"model: {daemon.json('status')['model']['name']}")

    chapter("A small codebase: all of it is in the prompt, and in the KV cache")
    load(daemon, small, "small")
    first, *others, unasked = quotes(small, 4)
    begun = ask(daemon, first, "small")
    warm = [ask(daemon, quote, "small") for quote in others][-1]
    compare(begun, warm, "asked with the prefix in the cache")

    chapter("A large codebase: a map of it in the prompt, the rest by retrieval")
    load(daemon, large, "large")
    for quote in quotes(large, 2):
        ask(daemon, quote, "large")

    chapter("The daemon restarts: the prefix comes back from disk")
    daemon.stop()
    since = time.monotonic()
    daemon.start()
    daemon.json("load", small, "--name", "small", "--wait")  # nothing changed: it waits until the prefix is restored
    counters = daemon.json("status")["engine"]["cache"]  # those of `lore stats cache` are of questions
    say(f"  {brought_back(counters)}, ready {time.monotonic() - since:.1f} s after the start")
    say("")
    compare(begun, ask(daemon, unasked, "small"), "asked after the restart, with the prefix restored from disk")


def brought_back(counters: Mapping[str, Any]) -> str:
    """What the engine has restored, and computed, since its start."""
    tokens, restored = counters["tier_restored_tokens"], counters["tier_restored_bytes"]
    return (
        f"restored from disk: {tokens:,} tokens, {restored / 2**20:.1f} MiB; computed: {counters['computed_tokens']:,}"
    )


def load(daemon: PrivateDaemon, folder: Path, name: str) -> None:
    say(f"$ lore load {folder} --name {name}")
    begun = time.monotonic()
    codex = daemon.json("load", folder, "--name", name)["codex"]
    about = "≈" if "full" in codex["estimated"] else ""
    tokens = f"{about}{codex['tokens']['full']:,}"
    say(f"  {codex['files']} files, {tokens} tokens, coverage {codex['tier']}, in {time.monotonic() - begun:.1f} s")
    say(f"  {codex['reason']}\n")


def ask(daemon: PrivateDaemon, quote: Quote, name: str) -> Mapping[str, Any]:
    """Asks, shows, and returns the answer's `lore` object."""
    say(f'$ lore ask "{quote.question}" -c {name}')
    answer = daemon.json("ask", quote.question, "-c", name, "--max-tokens", ANSWER_TOKENS)
    lore: Mapping[str, Any] = answer["lore"]
    text = " ".join(answer["answer"].split())
    right = text.startswith(quote.answer[: min(len(text), len(quote.answer))]) and bool(text)
    say(f"  {text}")
    say(f"  {'✓ as it stands in' if right else '✗ expected otherwise from'} {quote.path}:{quote.line}: {quote.answer}")
    say(f"  {lore['strategy']['name']}, cites {citations(lore) or 'nothing'}")
    for line in picture(lore):
        say(f"  {line}")
    say("")
    return lore


def citations(lore: Mapping[str, Any]) -> str:
    return ", ".join(map(place_of, lore["citations"][:3]))


def place_of(cited: Mapping[str, Any]) -> str:
    start, end = cited["start"], cited["end"]
    return f"{cited['path']}:{start}" + (f"-{end}" if end > start else "")


def compare(first: Mapping[str, Any], later: Mapping[str, Any], when: str) -> None:
    """Two questions that each begin a conversation. No factor between them: it would tell how large the codebase is."""
    prefix = sum(block["tokens"] for block in first["blocks"] if block["kind"] in ("identity", "codex"))
    say("  time to the first token of a new conversation:")
    waited = f"asked right after the load, which computes a prefix of {prefix:,} tokens"
    say(f"  {first['timings']['ttft_ms']:>9,.0f} ms  {waited}")
    say(f"  {later['timings']['ttft_ms']:>9,.0f} ms  {when}")


# ---- what is loaded --------------------------------------------------------------------------------------------------


def codebases(place: Path) -> tuple[Path, Path]:
    """Source distributions of two packages, or our own tree when they cannot be fetched."""
    chapter("Two real codebases")
    fetched = [fetch(place, *package) for package in (SMALL, LARGE)]
    if fetched[0] and fetched[1]:
        return fetched[0], fetched[1]
    say("offline: this checkout takes their place")
    return copy(ROOT / "formatters", place / "formatters"), copy(ROOT, place / "lorekeep")


def fetch(place: Path, name: str, version: str, part: str) -> Path | None:
    pip = [sys.executable, "-P", "-m", "pip", "download", "-qqq", "--retries", "1", "--no-deps", f"--no-binary={name}"]
    say(f"$ pip download {name}=={version}")
    done = subprocess.run([*pip, "--dest", str(place), f"{name}=={version}"], stdin=subprocess.DEVNULL, check=False)
    archives = sorted(place.glob(f"{name}-*.tar.gz"))
    if done.returncode != 0 or not archives:
        return None
    return (unpack(archives[0], place) / part).resolve()


def copy(tree: Path, target: Path) -> Path:
    """Without what git ignores, as far as a copy can tell: nothing that starts with a dot."""
    shutil.copytree(tree, target, ignore=lambda _, names: [name for name in names if name.startswith((".", "__"))])
    return target


# ---- on the terminal -------------------------------------------------------------------------------------------------


def chapter(title: str) -> None:
    say(f"\n── {title} ".ljust(100, "─"))


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
