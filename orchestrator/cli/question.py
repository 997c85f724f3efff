"""From what was typed and piped to the body of a request."""

import os
import stat
import sys
from pathlib import Path
from typing import Any

from orchestrator.cli.ask_options import AskOptions
from orchestrator.cli.faults import Failure
from orchestrator.wire import faults

LARGEST_FILE = 16 * 1024 * 1024  # bytes; beyond this no window holds it


def body_of(question: str | None, options: AskOptions) -> dict[str, Any]:
    """Raises Failure when there is nothing to ask, or a file cannot be read."""
    if options.session is not None and options.continue_last:
        raise Failure(faults.USAGE, "-s and --continue exclude each other", "give one of them")
    piped = "" if question == "-" or not is_piped() else read_input()
    if question == "-":
        text = read_input()
    elif question is None:
        text, piped = piped, ""
    else:
        text = question
    if not text.strip():
        raise Failure(faults.USAGE, "the question is empty", 'lore ask "how does it start?"')
    attachments = [attached(file) for file in options.files or ()]
    if piped.strip():
        attachments.append({"name": "standard input", "text": piped})
    return request(text, attachments, options)


def request(text: str, attachments: list[dict[str, str]], options: AskOptions) -> dict[str, Any]:
    lore: dict[str, Any] = {
        "codex": options.codex,
        "session": session_of(options),
        "continue": options.continue_last,
        "identity": options.identity,
        "strategy": options.strategy,
        "wait": not options.no_wait,
        "timeout_s": options.timeout_s,
        "think": not options.no_think,
        "record": not options.private,
        "attachments": attachments,
        "client": {"cwd": working_directory()},
    }
    body: dict[str, Any] = {
        "model": "lore",
        "messages": [{"role": "user", "content": text}],
        "max_completion_tokens": options.max_tokens,
        "temperature": options.temperature,
        "stop": options.stop or None,
        "lore": {key: value for key, value in lore.items() if value is not None},
    }
    return {key: value for key, value in body.items() if value is not None}


def session_of(options: AskOptions) -> str | None:
    """Without a name a new one begins; a private question belongs to none."""
    if options.continue_last or options.private:
        return None
    return options.session or ""


def is_piped() -> bool:
    """Whether somebody feeds standard input. Neither a terminal nor /dev/null is read."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def read_input() -> str:
    return decoded(sys.stdin.buffer.read(LARGEST_FILE + 1), "standard input")


def attached(name: str) -> dict[str, str]:
    try:
        with Path(name).open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise Failure(faults.USAGE, f"-f {name}: {error.strerror}", "name a file that you may read") from error
    return {"name": name, "text": decoded(raw, name)}


def decoded(raw: bytes, name: str) -> str:
    if len(raw) > LARGEST_FILE:
        raise Failure(
            faults.OVER_BUDGET, f"{name} is larger than {LARGEST_FILE} bytes", "load it as a codex: lore load"
        )
    if b"\0" in raw:
        raise Failure(faults.USAGE, f"{name} is not text", "only text can be read")
    return raw.decode("utf-8", errors="replace")


def working_directory() -> str:
    """Empty where it was removed under us."""
    try:
        return os.fsencode(Path.cwd()).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
