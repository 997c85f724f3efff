"""The line of `lore chat` on a terminal: editing, history, completion. The only module that imports prompt_toolkit."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import is_searching
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.bindings.search import accept_search_and_accept_input
from prompt_toolkit.output.vt100 import Vt100_Output

from orchestrator.cli import local
from orchestrator.cli.ask import working_directory
from orchestrator.cli.client import Daemon, Failure, route_part
from orchestrator.cli.places import meant
from orchestrator.cli.showing import screen
from orchestrator.cli.terminal import note

PROMPT = "> "
MOST = 40  # completions of one word
MAP_CHARACTERS = 400_000  # of a codex's map: what a large codebase has
LEAST_SEARCHED = 3  # characters: fewer begin too many names
WORD = re.compile(r"[\w./-]+$")
NAME = re.compile(r"[A-Za-z_]\w{2,}")


class EditedLines:
    """Lines that a person edits; a pasted text, or one of several lines, is one."""

    def __init__(self, names: "Names", *, private: bool, typed: Callable[[str], None] | None = None) -> None:
        self._history = InMemoryHistory() if private else kept_history()
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation="  ",
            history=self._history,
            completer=ThreadedCompleter(names),
            complete_while_typing=False,
            enable_suspend=True,  # the terminal sends no signal while a line is edited, only the key
            key_bindings=bindings(),
            # An answer about the cursor's place would come late, among what is typed.
            output=Vt100_Output(sys.stdout, size, term=os.environ.get("TERM"), enable_cpr=False),
        )
        if typed:
            self._session.default_buffer.on_text_changed += lambda buffer: typed(buffer.text)

    def read(self) -> str:
        line = self._session.prompt()
        if isinstance(self._history, KeptHistory) and (fault := self._history.news()):
            note(f"no history is kept: {fault}")  # not before: the line was still being drawn
        return line


def size() -> Size:
    columns, rows = screen()
    return Size(rows, columns)


def bindings() -> KeyBindings:
    keys = KeyBindings()

    keys.add("enter")(accept_search_and_accept_input)  # what Ctrl-R found is asked, as a shell runs it

    @keys.add("enter", filter=~is_searching)
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=~is_searching)
    def another_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c", filter=~is_searching)
    def clear(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return keys


class KeptHistory(FileHistory):
    """What was asked, in a file. A question that the file does not take, as on a full disk, is known in this conversation
    alone."""

    _fault = ""
    _told = False

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string)
        except OSError as error:
            self._fault = f"{self.filename!s}: {error.strerror}"

    def news(self) -> str:
        """The first fault, once."""
        fault, self._told = "" if self._told else self._fault, bool(self._fault)
        return fault


def kept_history() -> History:
    """What was asked before, of this user alone; of this conversation alone where no file can be written."""
    path = local.chat_history()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        path.chmod(0o600)
    except OSError as error:
        note(f"no history is kept: {path}: {error.strerror}")
        return InMemoryHistory()
    return KeptHistory(path)


class Names(Completer):
    """Commands, names of codices and sessions behind theirs, else paths and symbols of the codex, as the daemon tells them.

    A daemon that does not answer completes nothing.
    """

    def __init__(self, socket: str | None, commands: Sequence[str], codex: Callable[[], str | None]) -> None:
        self._socket = socket
        self._commands = commands
        self._codex = codex
        self._mapped: dict[str, list[str]] = {}  # by codex

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        del complete_event
        before = document.text_before_cursor
        with suppress(Failure):
            word, names = self._offered(before)
            yield from (Completion(name, start_position=-len(word)) for name in names)

    def _offered(self, before: str) -> tuple[str, list[str]]:
        command, blank, rest = before.partition(" ")
        if command.startswith("/") and not blank and "\n" not in command and "/" not in command[1:]:
            return command, [one for one in self._commands if one.startswith(command)]
        if command in ("/codex", "/session"):
            kind = {"/codex": "codices", "/session": "sessions"}[command]
            listed = Daemon(self._socket).call("GET", f"/v1/{kind}")[kind]
            return rest, [one["name"] for one in listed if one["name"].startswith(rest)]
        found = WORD.search(before)
        word = found[0] if found else ""
        return word, matching(word, self._known(word)) if word else []

    def _known(self, word: str) -> list[str]:
        codex = self._codex()
        if codex is None:
            listed = Daemon(self._socket).call("GET", "/v1/codices")["codices"]
            codex = (meant(listed, None, working_directory()) or {}).get("name")
        if not codex or codex == "none":
            return []
        if codex not in self._mapped:
            route = f"/v1/codices/{route_part(codex)}/map?most={MAP_CHARACTERS}"
            self._mapped[codex] = names_of(Daemon(self._socket).call("GET", route)["files"])
        names = self._mapped[codex]
        if len(word) >= LEAST_SEARCHED and "/" not in word:  # a map has not room for all symbols of a long file
            with suppress(Failure):  # its symbols may just be read for the first time
                begun = Daemon(self._socket).call("POST", "/v1/symbols", {"name": word, "codex": codex})
                names = [*names, *begun["near"]]
            found = Daemon(self._socket).call("POST", "/v1/search", {"query": word, "codex": codex, "n": MOST})["hits"]
            names = [*names, *(str(hit.get("symbol") or "") for hit in found)]
        return names


def names_of(files: Iterable[dict[str, str]]) -> list[str]:
    """Paths, then what the files define, each once."""
    listed = list(files)
    return list(
        dict.fromkeys([*(one["path"] for one in listed), *(n for f in listed for n in NAME.findall(f["line"]))])
    )


def matching(word: str, names: Iterable[str]) -> list[str]:
    """Those that begin with the word, then those whose last part does, in either case of letters; MOST at most."""
    low = word.lower()
    whole = [name for name in names if name.lower().startswith(low)]
    last = [name for name in names if re.split(r"[/.]", name.lower().rsplit("/", 1)[-1], maxsplit=1)[0].startswith(low)]
    members = [name for name in names if name.lower().rsplit(".", 1)[-1].startswith(low) and "/" not in name]
    return [name for name in dict.fromkeys((*whole, *last, *members)) if name][:MOST]
