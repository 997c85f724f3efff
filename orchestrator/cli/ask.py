"""`lore ask`: one question from what is typed and piped, its answer streamed, and the line under the answer."""

import functools
import inspect
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon, Event, Failure, told_of_waiting
from orchestrator.cli.places import PlacesOfAnswer, with_links
from orchestrator.cli.showing import Shown, shown
from orchestrator.cli.terminal import (
    clear_progress,
    count,
    duration,
    first_time,
    folded,
    is_terminal,
    listed,
    note,
    plural,
    progress,
    result_json,
    seconds,
    sooner,
    width_of,
    work,
)
from orchestrator.wire import faults
from orchestrator.wire.places import IN_SHORT, QUOTER, QUOTING_SHORT

ROUTE = "/v1/chat/completions"
LONG_WAIT_S = 5.0  # a shorter wait is over before it is read
LEAST_MEASURED_S = 1.0  # a rate of less is noise
CITED = 3  # places in the line under an answer
LEAST_DECODED_S, LEAST_DECODED = 0.2, 8  # the same of an answer: seconds behind its first token, and tokens
WAITS = {"model": "loading the model", "floor": "computing the codex", "prompt": "computing the prompt"}
WAITED = {"pause_ms": "paused", "model_ms": WAITS["model"], "queue_ms": "in the queue", "floor_ms": WAITS["floor"]}
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


# ---- the line under the answer; pure ---------------------------------------------------------------------------------


def answer_footer(lore: dict[str, Any], seen: Collection[str] = (), *, named: bool = False) -> list[str]:
    """One line, and one more for each thing that somebody may want to act on. From an answer's lore object; what is missing
    in it is left out. Notices that who reads has `seen` are counted; of the model's its name is enough. `named`: who asked
    named the session."""
    if not lore:
        return []
    notice = notice_of(lore)
    known = bool(notice) and notice in seen
    told = dict.fromkeys(filter(None, lore.get("notices", ())))
    before = sum(one in seen for one in told)
    parts = [
        codex_part(lore.get("codex")),
        strategy_part(lore.get("strategy", {})) if lore.get("codex") else "",  # without one there is none to take
        *prompt_parts(lore),
        str(lore.get("model", "")) if known else "",
        f"{plural(before, 'notice')} as before" if before else "",
        cited_part(lore.get("citations", ())),
        session_part(lore, named=named),
        str(lore.get("governor", {}).get("left_out") or ""),
    ]
    lines = [" · ".join(part for part in parts if part)]
    lines += [f"this turn was not saved: {lore['not_kept']}"] if lore.get("not_kept") else []
    lines += censored_lines(lore.get("censored", ()))
    lines += noted_lines(lore.get("noted", ()))
    lines += wrongly_cited(lore.get("citations", ()))
    lines += [one for one in told if one not in seen]
    return [*lines, notice] if notice and not known else lines


def session_part(lore: dict[str, Any], *, named: bool) -> str:
    """'' where it went on without being named: its name was said when it began."""
    name, began = lore.get("session"), lore.get("began")
    if not name or lore.get("not_kept"):
        return ""
    if named:
        return f"new session {name}" if began else f"session {name}"
    return f"go on: -s {name}" if began else ""


def notice_of(lore: dict[str, Any]) -> str:
    """What must be known of the model that answered, in short: `lore status` and `lore doctor` say it in full."""
    notice = str(lore.get("notice") or "")
    if not str(lore.get("model", "")).startswith(QUOTER):
        return notice
    return "; ".join(IN_SHORT.get(one, one) for one in notice.split("; ")) if notice else QUOTING_SHORT


def codex_part(codex: dict[str, Any] | None) -> str:
    if not codex:
        return "no codex"
    state = code_state(codex)
    indexing = ", still indexing" if codex.get("indexing") else ""
    return f"{codex['name']} {state}".rstrip() + indexing


def code_state(codex: dict[str, Any]) -> str:
    """`main@1a2b3c4 + 1 changed, 1 removed file`: of a removed one, the last text may still be quoted."""
    revision = str(codex.get("revision") or "")[:7]
    branch = codex.get("branch") or ""
    state = f"{branch}@{revision}" if branch and revision else revision or branch
    words = changed_files(len(codex.get("amendments", ())), len(codex.get("removed", ())))
    return f"{state} + {words}".lstrip() if words else state


def changed_files(amended: int, removed: int) -> str:
    """`removed` are some of the `amended`."""
    changed = amended - removed
    if changed and removed:
        return f"{changed} changed, {plural(removed, 'removed file')}"
    kind, number = ("removed file", removed) if removed else ("changed file", changed)
    return plural(number, kind) if number else ""


def strategy_part(strategy: dict[str, Any]) -> str:
    name, coverage = strategy.get("name", ""), strategy.get("tier", "")
    return f"{name} ({coverage})" if name and coverage else name


def prompt_parts(lore: dict[str, Any]) -> list[str]:
    prompt = lore.get("prompt", {})
    timings = lore.get("timings", {})
    parts = [
        f"{count(prompt.get('cached', 0))} tokens cached, {count(prompt.get('computed', 0))} computed{sooner(prompt)}"
    ]
    if timings.get("ttft_ms"):
        parts.append(f"first token {seconds(timings['ttft_ms'])}{long_waits(timings)}")
    if rate := rate_of(timings):
        parts.append(f"{rate:.1f} tokens/s")
    return parts


def long_waits(timings: dict[str, Any]) -> str:
    """` (12 s in the queue, 31 s computing the codex)`; '' where nothing was waited for."""
    waits = {what: timings.get(name, 0.0) / 1000 for name, what in WAITED.items()}
    words = listed(*(f"{duration(amount)} {what}" for what, amount in waits.items() if amount >= LONG_WAIT_S))
    return f" ({words})" if words else ""


def rate_of(timings: dict[str, Any]) -> float:
    """Tokens of the answer a second; 0 where so few were generated that it is noise."""
    rate: float = timings.get("tokens_per_second") or 0.0
    took = (timings.get("total_ms", 0.0) - timings.get("ttft_ms", 0.0)) / 1000
    return rate if took >= LEAST_DECODED_S and rate * took >= LEAST_DECODED else 0.0


def censored_lines(marks: Any) -> list[str]:
    """What goes against a censor, with its passage, and how to say that it is a false alarm."""
    words = {"warn": "warning", "block": "blocked"}
    return [
        f"{words.get(one['severity'], one['severity'])}: the {one['watches']} goes against {first_line(one['text'])!r}: "
        f"{one['passage']} · false alarm: lore memory rate {one['id']} down"
        for one in marks
    ]


def noted_lines(noted: Any) -> list[str]:
    """What was remembered of the turn, each with what undoes or keeps it."""
    return [f"{noted_as(one)} {one['kind']}: {first_line(one['text'])} · {done_with(one)}" for one in noted]


def noted_as(one: dict[str, Any]) -> str:
    if one.get("suggested"):
        return f"proposed outcome {one['suggested']} of"
    return "proposed" if one["state"] == "proposed" else "noted" if one["made"] else "confirmed"


def done_with(one: dict[str, Any]) -> str:
    if one["state"] == "proposed" or one.get("suggested"):
        return f"keep it: lore memory confirm {one['id']}"
    return f"undo: lore memory forget {one['id']}" if one["made"] else f"lore memory show {one['id']}"


def first_line(text: str) -> str:
    line, more, _ = text.partition("\n")
    return f"{line} …" if more else line


def citation_lines(citations: Any) -> list[str]:
    """Each place once; the fault of one follows it."""
    shown = [f"{place} ({wrong})" if wrong else place for place, wrong in places_of(citations).items()]
    return [f"cites {', '.join(shown)}"] if shown else []


def cited_part(citations: Any) -> str:
    """The first places that are right; the answer itself names the others."""
    right = [place for place, wrong in places_of(citations).items() if not wrong]
    more = f" and {len(right) - CITED} more" if len(right) > CITED else ""
    return f"cites {', '.join(right[:CITED])}{more}" if right else ""


def wrongly_cited(citations: Any) -> list[str]:
    return [f"cites {place} wrongly: {wrong}" for place, wrong in places_of(citations).items() if wrong]


def places_of(citations: Any) -> dict[str, str]:
    """What is wrong with each place, '' where nothing is."""
    return {f"{cited['path']}:{cited['start']}": wrong_with(cited) for cited in citations}


def wrong_with(cited: dict[str, Any]) -> str:
    return "" if cited.get("valid") else str(cited.get("why") or "not there")
