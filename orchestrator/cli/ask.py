"""`lore ask`: one question, its answer streamed."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.cli import options as given
from orchestrator.cli.ask_options import UNSAID, AskOptions, Question, with_ask_options
from orchestrator.cli.connect import daemon
from orchestrator.cli.faults import Failure
from orchestrator.cli.figures import about, count
from orchestrator.cli.footer import footer, notice_of
from orchestrator.cli.once import first_time
from orchestrator.cli.question import body_of
from orchestrator.cli.terminal import clear_progress, faint, is_terminal, note, progress, result, result_json, safe
from orchestrator.wire import faults

if TYPE_CHECKING:
    from orchestrator.cli.client import Event

ROUTE = "/v1/chat/completions"
WORTH_TELLING_S = 5.0  # a shorter wait is over before it is read


@dataclass
class Answer:
    """An answer as it grows."""

    text: list[str] = field(default_factory=list)
    finish_reason: str = ""
    lore: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    waited: bool = False  # a line of progress stands on the terminal
    told: bool = False  # that a floor is waited for, where no terminal shows how far it is


@with_ask_options
def ask(
    question: Question = None,
    options: AskOptions = UNSAID,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Asks one question and streams the answer. A pipe adds standard input."""
    body = body_of(question, options)
    for attachment in body["lore"]["attachments"]:
        note(f"with {attachment['name']}: {len(attachment['text']):,} characters")
    answer = received(daemon(socket).stream(ROUTE, {**body, "stream": True}), show=not as_json)
    if as_json:
        told = {"finish_reason": answer.finish_reason, "lore": answer.lore, "usage": answer.usage}
        result_json({"answer": "".join(answer.text), **told})
    else:
        finish(answer, options)


def received(events: "Iterator[Event]", *, show: bool) -> Answer:
    """The whole answer; shown as it comes. Raises Failure when it breaks off."""
    answer = Answer()
    for event in events:
        if event.aside:
            tell_waiting(answer, event.data, show=show)
            continue
        if answer.waited:
            clear_progress()
            answer.waited = False
        take(answer, event.data, show=show)
    if not answer.finish_reason:
        raise Failure(faults.FAILED, "the daemon broke off its answer", "ask again; `lore status` tells how it is")
    return answer


def take(answer: Answer, chunk: dict[str, Any], *, show: bool) -> None:
    answer.lore = chunk.get("lore") or answer.lore
    answer.usage = chunk.get("usage") or answer.usage
    for choice in chunk.get("choices", ()):
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        delta = choice.get("delta", {})
        if thought := delta.get("reasoning_content"):
            think(thought, show=show)
        if text := delta.get("content"):
            answer.text.append(text)
            if show:
                result(text, end="")


def think(thought: str, *, show: bool) -> None:
    if show and sys.stderr.isatty():
        sys.stderr.write(faint(safe(thought, sys.stderr), sys.stderr))
        sys.stderr.flush()


def tell_waiting(answer: Answer, aside: Any, *, show: bool) -> None:
    at = aside.get("progress", {}) if isinstance(aside, dict) else {}
    if is_terminal(sys.stderr):
        progress(waiting(at))
        answer.waited = True
    elif show and not answer.told and is_long(at):
        note(long_wait(at))
        answer.told = True


def is_long(at: dict[str, Any]) -> bool:
    left = at.get("left_s")
    return at.get("phase") == "floor" and left is not None and left >= WORTH_TELLING_S


def long_wait(at: dict[str, Any]) -> str:
    of = f" of {at['codex']}" if at.get("codex") else ""
    return f"waiting for the floor{of}: {about(at['left_s'])}, {count(at['done'])} of {count(at['total'])} tokens stand"


def waiting(at: dict[str, Any]) -> str:
    """`floor 1,024/8,000 tokens`; the phases are the daemon's: queue, model, floor, prompt."""
    done, total = at.get("done", 0), at.get("total", 0)
    if at.get("phase") == "model":
        return "waiting for the model" + (f", {done} %" if done else "")
    return f"waiting for {at.get('phase', 'the daemon')}" + (f" {done:,}/{total:,}" if total else "")


def finish(answer: Answer, options: AskOptions) -> None:
    """What stands under the answer; also that a conversation began, whose name may have been a slip."""
    if answer.text and not answer.text[-1].endswith("\n"):
        result("")
    if not "".join(answer.text).strip():
        note("the model answered nothing")
    if answer.finish_reason == "length":
        note(f"cut at {options.max_tokens:,} tokens; --max-tokens allows more")
    if options.session and answer.lore.get("began"):
        note(f"a new conversation, {options.session}")
    notice = notice_of(answer.lore)
    for line in footer(answer.lore, known=bool(notice) and not first_time(notice)):
        note(line)
