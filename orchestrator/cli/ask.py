"""`lore ask`: one question from what is typed and piped, and its answer streamed."""

import functools
import inspect
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon, Event, Failure, told_of_waiting
from orchestrator.cli.footer import LONG_WAIT_S, WAITS, answer_footer, notice_of
from orchestrator.cli.places import PlacesOfAnswer, with_links
from orchestrator.cli.showing import Shown, shown
from orchestrator.cli.terminal import (
    clear_progress,
    first_time,
    folded,
    is_terminal,
    note,
    progress,
    result_json,
    width_of,
    work,
)
from orchestrator.wire import faults

ROUTE = "/v1/chat/completions"
LEAST_MEASURED_S = 1.0  # a rate of less is noise
LARGEST_FILE = 16 * 1024 * 1024  # bytes; beyond this no window holds it
Plain = Annotated[bool, given.option("--plain", "print the answer as it is, also on a terminal")]
Question = Annotated[str | None, typer.Argument(metavar="QUESTION", help="what to ask; - reads it from standard input")]


@dataclass(frozen=True)
class AskOptions:
    """How a question is answered: the options of `lore ask` and `lore plan`, a field each."""

    codex: Annotated[str | None, given.option("-c, --codex NAME", f"{given.WHICH}; none: the bare model")] = None
    session: Annotated[str | None, given.option("-s, --session NAME", "the session to go on with, or to begin")] = None
    continue_last: Annotated[bool, given.option("--continue", "go on with your last session on this codex")] = False
    identity: Annotated[str | None, given.option("--identity NAME", "the identity that answers")] = None
    strategy: Annotated[str | None, given.option("--strategy NAME", "force CAG, HYBRID, RAG or RAG+GRAPH")] = None
    variant: Annotated[str | None, given.option("--variant NAME", "a variant of the rules of relevance")] = None
    max_tokens: Annotated[int, given.option("--max-tokens N", "longest answer, in tokens", min=1)] = 2048
    temperature: Annotated[float | None, given.option("--temperature T", "0 is greedy", min=0, max=2)] = None
    stop: Annotated[list[str] | None, given.option("--stop TEXT", "end the answer before this text")] = None
    files: Annotated[list[str] | None, given.option("-f, --file FILE", "a file that precedes the question")] = None
    verbatim: Annotated[
        list[str] | None, given.option("--verbatim TEXT", "a text that the session keeps to the letter")
    ] = None
    no_wait: Annotated[
        bool, given.option("--no-wait", "end where it must be waited for: model or codex (8), a pause (7)")
    ] = False
    timeout_s: Annotated[float | None, given.option("--timeout S", "wait at most so many seconds", min=0.001)] = None
    no_think: Annotated[bool, given.option("--no-think", "ask a thinking model for the answer alone")] = False
    private: Annotated[bool, given.option("--private", "save no conversation and no memory of this question")] = False


UNSAID = AskOptions()


def with_ask_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer sees it: one parameter for each field of `options`."""

    @functools.wraps(command)
    def called(**arguments: Any) -> None:
        options = AskOptions(**{field.name: arguments.pop(field.name) for field in fields(AskOptions)})
        command(**arguments, options=options)

    parameters: list[Parameter] = []
    for one in inspect.signature(command).parameters.values():
        parameters += spread() if one.name == "options" else [one]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


def spread() -> list[Parameter]:
    kind = Parameter.POSITIONAL_OR_KEYWORD
    return [Parameter(one.name, kind, default=one.default, annotation=one.type) for one in fields(AskOptions)]


class Wait:
    """What is waited for, with its rate and the time left, from the daemon's progress: queue, model, floor or prompt.

    The rate is measured from the first report of a phase; before there is one, it is what the daemon predicts.
    """

    def __init__(self) -> None:
        self._phase = ""
        self._began = (0.0, 0)  # seconds, and what was done then

    def line(self, at: dict[str, Any], now: float) -> str:
        """One line for a report that came at `now`, in seconds of any clock."""
        phase, done, total, left = at.get("phase", ""), at.get("done", 0), at.get("total", 0), at.get("left_s")
        if phase == "pause":
            return f"{at.get('detail') or 'paused'}; waiting"
        if phase not in WAITS:
            return "waiting in the queue" if phase == "queue" else f"waiting for {phase or 'the daemon'}"
        if phase != self._phase:
            self._phase, self._began = phase, (now, done)
        since, before = self._began
        rate = (done - before) / (now - since) if done > before and now - since >= LEAST_MEASURED_S else None
        if left is None and rate:
            left = (total - done) / rate
        elif rate is None and left:
            rate = (total - done) / left
        return work(WAITS[phase], done, total, rate if phase != "model" else None, left)


@dataclass
class Answer:
    """An answer as it grows."""

    text: list[str] = field(default_factory=list)
    finish_reason: str = ""
    lore: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    waited: bool = False  # the terminal shows a line of progress
    noted: bool = False  # a long wait, where no terminal shows progress
    wait: Wait = field(default_factory=Wait)


@with_ask_options
def ask(
    question: Question = None,
    options: AskOptions = UNSAID,
    plain: Plain = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Asks one question and streams the answer, on a terminal as Markdown. A pipe adds standard input."""
    body = body_of(question, options)
    for attachment in body["lore"]["attachments"]:
        note(f"with {attachment['name']}: {len(attachment['text']):,} characters")
    places = PlacesOfAnswer(socket, options.codex, working_directory())
    view = None if as_json else shown(plain=plain, link=places)
    answer = received(socket, Daemon(socket).stream(ROUTE, {**body, "stream": True}), view, places)
    if as_json:
        answer_json(answer)
    else:
        finish(answer, options, socket)


def answer_json(answer: Answer) -> None:
    rest = {"finish_reason": answer.finish_reason, "lore": answer.lore, "usage": answer.usage}
    result_json({"answer": "".join(answer.text), **rest})


def received(
    socket: str | None, events: Iterator[Event], view: Shown | None, places: PlacesOfAnswer | None = None
) -> Answer:
    """The whole answer; shown as it comes. Raises Failure when it breaks off, and then shows all that came."""
    answer = Answer()
    try:
        with told_of_waiting(socket, lambda: answer.noted):
            for event in events:
                if event.aside:
                    at = event.data.get("progress", {}) if isinstance(event.data, dict) else {}
                    if places and at.get("codex"):
                        places.codex = str(at["codex"])
                    show_waiting(answer, at, view)
                    continue
                if answer.waited:
                    clear_progress()
                    answer.waited = False
                take(answer, event.data, view)
    finally:
        if view:
            view.end()
    if not answer.finish_reason:
        raise Failure(faults.FAILED, "the daemon broke off its answer", "ask again; `lore status` shows its state")
    return answer


def take(answer: Answer, chunk: dict[str, Any], view: Shown | None) -> None:
    answer.lore = chunk.get("lore") or answer.lore
    answer.usage = chunk.get("usage") or answer.usage
    for choice in chunk.get("choices", ()):
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        delta = choice.get("delta", {})
        if (thought := delta.get("reasoning_content")) and view:
            view.thought(thought)
        if text := delta.get("content"):
            answer.text.append(text)
            if view:
                view.text(text)


def show_waiting(answer: Answer, at: dict[str, Any], view: Shown | None) -> None:
    if is_terminal(sys.stderr):
        if view is None or not view.busy():
            progress(answer.wait.line(at, time.monotonic()))
            answer.waited = True
    elif view and not answer.noted and is_long(at):
        note(answer.wait.line(at, time.monotonic()))
        answer.noted = True


def is_long(at: dict[str, Any]) -> bool:
    left = at.get("left_s")
    return at.get("phase") == "pause" or (at.get("phase") == "floor" and left is not None and left >= LONG_WAIT_S)


def finish(answer: Answer, options: AskOptions, socket: str | None) -> None:
    """Prints the lines under the answer; also that a session began whose name may be a typing error."""
    if not "".join(answer.text).strip():
        note("the model answered nothing; ask again in other words, best with names that stand in the code")
    if answer.finish_reason == "length":
        note(cut(answer, options.max_tokens))
    link = with_links(answer.lore.get("codex"))
    first, *others = answer_footer(answer.lore, seen_here(answer.lore), named=options.session is not None) or [""]
    for line in filter(None, (folded(first, width_of(sys.stderr)), *others)):
        note(line, link)
    if options.session and answer.lore.get("began") and (near := near_name(options.session, session_names(socket))):
        note(f"the session {options.session} is new; did you mean {near}?")


def seen_here(lore: dict[str, Any]) -> frozenset[str]:
    """Of what tells how things stand, what this terminal has shown before; the rest is marked as shown."""
    return frozenset(one for one in (notice_of(lore), *lore.get("lasting", ())) if one and not first_time(one))


def cut(answer: Answer, allowed: int) -> str:
    """An answer that is shorter than was allowed was ended by the window, as a line of the footer says."""
    tokens = min(answer.usage.get("completion_tokens", allowed), allowed)
    return f"cut at {tokens:,} tokens" + ("; --max-tokens allows more" if tokens == allowed else "")


def session_names(socket: str | None) -> list[str]:
    with suppress(Failure):  # the answer is there, and who may ask may not be permitted to list
        return [session["name"] for session in Daemon(socket).call("GET", "/v1/sessions")["sessions"]]
    return []


def near_name(name: str, names: list[str]) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, [one for one in names if one != name], n=1)), "")


# ---- the request -----------------------------------------------------------------------------------------------------


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
        raise Failure(faults.USAGE, "the question is empty", 'put it behind the command: "how does it start?"')
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
        "variant": options.variant,
        "wait": not options.no_wait,
        "timeout_s": options.timeout_s,
        "think": not options.no_think,
        "record": not options.private,
        "attachments": attachments,
        "verbatim": options.verbatim or None,
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
    """Without a name a new one begins, but for a private question, which reads the one that is named and adds nothing."""
    return options.session or (None if options.continue_last or options.private else "")


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
        raise Failure(faults.USAGE, f"-f {name!r}: {error.strerror}", "name a file that you may read") from error
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
