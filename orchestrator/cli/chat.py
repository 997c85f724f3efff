"""`lore chat`: a conversation. Each line is a question or a command; the daemon keeps the session.

What a line means is decided here, for a terminal and for a pipe alike. `chat_line` reads lines from a terminal.
"""

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Protocol

from orchestrator.cli import options as given
from orchestrator.cli.ask import (
    ROUTE,
    UNSAID,
    Answer,
    AskOptions,
    Plain,
    answer_json,
    attached,
    finish,
    received,
    request,
    with_ask_options,
    working_directory,
)
from orchestrator.cli.chat_pages import help_page, in_context, why
from orchestrator.cli.client import Daemon, Failure, route_part, told_of_waiting
from orchestrator.cli.places import PlacesOfAnswer, meant
from orchestrator.cli.plan import plan_page
from orchestrator.cli.showing import shown
from orchestrator.cli.terminal import NO_CURSOR, is_terminal, note, result_page, to_stderr
from orchestrator.cli.trace import voted_words
from orchestrator.wire import faults

PAUSE_S = 0.4  # without a key, until the prompt is computed ahead
LEAST_AHEAD = 12  # characters: a shorter question is computed as quickly when it comes
HOW_TO_LEAVE = "Ctrl-D or /quit leaves"
COMMANDS: Mapping[str, str] = {
    "/plan TEXT": "what would be decided for this question; nothing runs",
    "/files": "what the last answer had in its context, and what was left out",
    "/good [NOTE]": "the last answer was right",
    "/bad [NOTE]": "it was not",
    "/why": "what the last answer reused, what was computed, and where its prompt left the cache",
    "/codex [NAME]": "shows the codex, or changes it: a new session begins",
    "/session [NAME]": "shows the session, names it, or goes on with another one",
    "/help": "this page",
    "/quit": "leaves; the session stays",
}
NAMED_BY_OPTION = re.compile(r"(?<![\w-])-c (NAME|none)\b")  # how `lore ask` names a codex
Ahead = Annotated[bool, given.option("--ahead", "compute the prompt while you type")]


class LineSource(Protocol):
    """Where lines come from. `read` raises EOFError at their end, and KeyboardInterrupt for a Ctrl-C at an empty line."""

    def read(self) -> str: ...


@with_ask_options
def chat(
    options: AskOptions = UNSAID,
    ahead: Ahead = False,
    plain: Plain = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """A conversation: each line is a question, /help shows the commands. Without a terminal, answers each line of stdin."""
    if options.session is not None and options.continue_last:
        raise Failure(faults.USAGE, "-s and --continue exclude each other", "give one of them")
    talk = Talk(options, socket, plain=plain, as_json=as_json)
    codices = talk.codices()  # that no daemon is there is said before the first question
    if not is_terminal(sys.stdin):
        for text in piped():
            talk.take(text)
        return
    note(talk.greeting(codices))
    lines, stop = lines_of(talk, ahead=ahead)
    try:
        converse(talk, lines, stop)
    finally:
        stop()
    if words := talk.farewell():
        note(words)


def converse(talk: "Talk", lines: LineSource, stop: Callable[[], None]) -> None:
    """Until the user leaves. A question that fails or is cancelled does not end it."""
    while not talk.over:
        try:
            text = lines.read()
        except KeyboardInterrupt:
            note(HOW_TO_LEAVE)
            continue
        except EOFError:
            return
        stop()
        try:
            with unechoed():
                talk.take(text)
        except KeyboardInterrupt:
            note("cancelled; the conversation goes on from before this question")
        except Failure as failure:
            failure.show()


def lines_of(talk: "Talk", *, ahead: bool) -> tuple[LineSource, Callable[[], None]]:
    """The lines of the terminal, and what ends computing ahead."""
    if not is_terminal(sys.stdout) or os.environ.get("TERM", "") in NO_CURSOR:
        return DumbLines(), lambda: None
    from orchestrator.cli.chat_line import EditedLines, Names

    names = Names(talk.socket, [name.split()[0] for name in COMMANDS], lambda: talk.codex)
    if not ahead:
        return EditedLines(names, private=talk.options.private), lambda: None
    early = Early(talk)
    return EditedLines(names, private=talk.options.private, typed=early.typed), early.stop


class Talk:
    """One conversation: what the next question is asked with, and the last answer."""

    def __init__(self, options: AskOptions, socket: str | None, *, plain: bool, as_json: bool) -> None:
        self.options = options
        self.socket = socket
        self.over = False
        self.last: dict[str, Any] = {}  # the lore object of the last answer
        self._plain = plain
        self._as_json = as_json
        self._page = note if as_json else result_page  # of a command: JSON stays JSON
        self._said: list[dict[str, str]] = []  # of a private conversation, which no session holds
        self._attachments = [attached(file) for file in options.files or ()]
        for attachment in self._attachments:
            note(f"with {attachment['name']}: {len(attachment['text']):,} characters")

    @property
    def codex(self) -> str | None:
        """Its name; None where it follows from the working directory."""
        return self.options.codex or (self.last.get("codex") or {}).get("name")

    def take(self, text: str) -> None:
        """A line: a command, or a question. Raises Failure."""
        try:
            self._take(text.strip())
        except Failure as failure:
            raise Failure(failure.status, in_chat(failure.message), in_chat(failure.hint), failure.code) from failure

    def _take(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if not text:
            return
        if not word.startswith("/") or "/" in word[1:]:
            self.ask(text)
        elif run := self._commands().get(word):
            run(rest.strip())
        else:
            raise Failure(
                faults.USAGE, f"no such command: {word}", "/help shows them; a blank before / makes a question"
            )

    def _commands(self) -> Mapping[str, Callable[[str], None]]:
        return {
            "/plan": self._plan,
            "/files": self._files,
            "/good": lambda why: self._vote("up", why),
            "/bad": lambda why: self._vote("down", why),
            "/why": lambda _: self._page(why(self._answered())),
            "/codex": self._codex,
            "/session": self._session,
            "/help": lambda _: self._page(help_page(COMMANDS)),
            "/quit": lambda _: self._leave(),
        }

    # ---- questions

    def ask(self, text: str) -> None:
        """Shows the answer. Raises Failure, and KeyboardInterrupt when it is cancelled: then nothing has changed."""
        places = PlacesOfAnswer(self.socket, self.codex, working_directory())
        view = None if self._as_json else shown(plain=self._plain, link=places)
        daemon = Daemon(self.socket)
        try:
            answer = received(self.socket, daemon.stream(ROUTE, {**self.body(text), "stream": True}), view, places)
        except KeyboardInterrupt:
            daemon.leave()
            raise
        if self._as_json:
            answer_json(answer)
        else:  # the conversation goes on by itself; a new name alone may be a typing error
            is_news = self.options.session and answer.lore.get("began")
            lore = answer.lore if is_news else {**answer.lore, "session": ""}
            finish(replace(answer, lore=told_in_chat(lore)), self.options, self.socket)
        self._keep(text, answer)

    def body(self, text: str, options: AskOptions | None = None) -> dict[str, Any]:
        """The request of a question."""
        body = request(text, self._attachments, options or self.options)
        return {**body, "messages": [*self._said, *body["messages"]]}

    def _keep(self, text: str, answer: Answer) -> None:
        self.last = answer.lore
        self._attachments = []  # the session has them
        if self.options.private:
            said = "".join(answer.text)
            self._said += [{"role": "user", "content": text}, {"role": "assistant", "content": said}]
        elif session := answer.lore.get("session"):
            self.options = replace(self.options, session=session, continue_last=False, verbatim=None)

    # ---- commands

    def _plan(self, text: str) -> None:
        if not text:
            raise Failure(faults.USAGE, "nothing to plan", "/plan TEXT")
        with told_of_waiting(self.socket):
            self._page(in_chat(plan_page(Daemon(self.socket).call("POST", "/v1/plan", self.body(text)))))

    def _files(self, _: str) -> None:
        lore = self._answered()
        name = (lore.get("codex") or {}).get("name")
        files = Daemon(self.socket).call("GET", f"/v1/codices/{route_part(name)}/files?n=10000") if name else None
        trace = self._trace(lore)
        self._page(in_context(lore, files, trace))

    def _trace(self, lore: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if not lore.get("trace"):
            return None
        with suppress(Failure):  # it may have been purged; the rest can be told
            found: Mapping[str, Any] = Daemon(self.socket).call("GET", f"/v1/traces/{lore['trace']}?prompt=1")["trace"]
            return found
        return None

    def _vote(self, vote: str, why: str) -> None:
        trace = self._answered().get("trace")
        if not trace:
            raise Failure(faults.NOT_FOUND, "a private answer leaves no trace to vote on", "")
        report = Daemon(self.socket).call("POST", f"/v1/traces/{trace}/feedback", {"vote": vote, "note": why})
        note(voted_words(report))

    def _codex(self, name: str) -> None:
        names = [one["name"] for one in self.codices()]
        current = self._current()
        if not name:
            self._page("\n".join(f"{'*' if one == current else ' '} {one}" for one in [*names, "none"]))
            return
        if name not in (*names, "none"):
            raise Failure(faults.NOT_FOUND, f"no codex named {name!r}", "/codex shows what there is")
        if name == current:
            note(f"{name} is the codex of this conversation")
            return
        self.options = replace(self.options, codex=name, session=None, continue_last=False)
        self.last, self._said = {}, []
        note(f"a new session begins, on {name}" if name != "none" else "a new session begins, without a codex")

    def _current(self) -> str:
        name = self.codex
        if name is None and not self.last:
            name = (meant(self.codices(), None, working_directory()) or {}).get("name")
        return name or "none"

    def _session(self, name: str) -> None:
        current = self.options.session
        if not name:
            self._page(current or "none yet; the next question begins one")
            return
        if self.options.private:
            raise Failure(faults.USAGE, "a private conversation has no session", "leave --private out")
        known = [one["name"] for one in Daemon(self.socket).call("GET", "/v1/sessions")["sessions"]]
        if name in known:
            self.options = replace(self.options, session=name, continue_last=False, codex=None)
            self.last = {}
            note(f"goes on with {name}")
        elif current and current in known:
            renamed = Daemon(self.socket).call(
                "PATCH", f"/v1/sessions/{route_part(current, 'session')}", {"name": name}
            )
            self.options = replace(self.options, session=renamed.get("session", {}).get("name", name))
            note(f"{current} is now {name}")
        else:
            self.options = replace(self.options, session=name, continue_last=False)
            note(f"the next question begins {name}")

    def _leave(self) -> None:
        self.over = True

    def _answered(self) -> dict[str, Any]:
        if not self.last:
            raise Failure(
                faults.NOT_FOUND, "nothing is answered yet", "ask first; /plan TEXT shows what a question has"
            )
        return self.last

    def codices(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = Daemon(self.socket).call("GET", "/v1/codices")["codices"]
        return listed

    def greeting(self, codices: Sequence[Mapping[str, Any]]) -> str:
        """What is asked about, and how to learn more."""
        about = self.codex or (meant(codices, None, working_directory()) or {}).get("name")
        if about:
            return f"about {about}; /help shows the commands"
        if not codices:
            return "no codex is loaded: lore load PATH; /help shows the commands"
        return f"/codex NAME chooses what is asked about: {', '.join(sorted(one['name'] for one in codices))}; /help"

    def farewell(self) -> str:
        """How to go on; '' where no session holds anything."""
        if not self.last or self.options.private or not self.options.session:
            return ""
        codex = f" -c {self.options.codex}" if self.options.codex else ""
        return f"go on: lore chat --continue{codex} (session {self.options.session})"


def in_chat(text: str) -> str:
    """A hint that the daemon gives to who types commands of a shell, as one types it here."""
    return NAMED_BY_OPTION.sub(r"/codex \1", text).replace("lore plan shows which", "/files shows which")


def told_in_chat(lore: dict[str, Any]) -> dict[str, Any]:
    """What an answer tells a person, in the words of a conversation."""
    governor = lore.get("governor") or {}
    told = {name: [in_chat(one) for one in lore.get(name, ())] for name in ("notices", "lasting")}
    return {**lore, **told, "governor": {**governor, "left_out": in_chat(str(governor.get("left_out") or ""))}}


@dataclass
class Early:
    """Has the prompt computed of what is typed so far, when no key was pressed for a while.

    It asks privately for one token and throws that away, so nothing of it is kept but the cache. What was typed then is
    not computed again when the question comes. A question that is changed at its beginning gains nothing.
    """

    talk: Talk
    timer: threading.Timer | None = None
    running: Daemon | None = None

    def typed(self, text: str) -> None:
        self.stop()
        if len(text.strip()) >= LEAST_AHEAD and not text.startswith("/"):
            self.timer = threading.Timer(PAUSE_S, self._compute, (text,))
            self.timer.daemon = True
            self.timer.start()

    def stop(self) -> None:
        """What is computed so far stays in the cache."""
        if self.timer:
            self.timer.cancel()
        if self.running:
            self.running.leave()

    def _compute(self, text: str) -> None:
        options = replace(self.talk.options, private=True, no_wait=True, max_tokens=1)
        from http.client import HTTPException

        with suppress(Failure, HTTPException, OSError):  # stopped; or the question itself says what is wrong
            self.running = Daemon(self.talk.socket)
            self.running.call("POST", ROUTE, self.talk.body(text.strip(), options))


class DumbLines:
    """From a terminal that cannot move its cursor, or whose answers go elsewhere: the kernel edits the line."""

    def read(self) -> str:
        to_stderr("> ")
        text = next(joined(iter(sys.stdin.readline, "")), None)
        if text is None:
            to_stderr("\n")
            raise EOFError
        return text


def piped() -> Iterator[str]:
    return joined(iter(sys.stdin.readline, ""))


def joined(lines: Iterator[str]) -> Iterator[str]:
    """Lines, those that end with a backslash joined with the next one."""
    held: list[str] = []
    for line in lines:
        text = line.removesuffix("\n")
        if text.endswith("\\"):
            held.append(text[:-1])
            continue
        yield "\n".join((*held, text))
        held = []
    if held:
        yield "\n".join(held)


@contextmanager
def unechoed() -> Iterator[None]:
    """What is typed meanwhile is not shown, for it would stand amid the answer; the next line begins with it."""
    import termios

    try:
        before = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError):
        yield
        return
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
