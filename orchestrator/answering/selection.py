"""Lines of a file of the codex."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from codex.errors import CodexError
from codex.following.amendments import effective
from formatters.context import AttachmentView
from orchestrator.codices.state import CodexState


@dataclass(frozen=True)
class Passage:
    """`start` is the number of the first line."""

    path: str
    start: int
    text: str


NAME = "where the user is"

Read = Callable[[str, str], str]


@dataclass(frozen=True)
class Pointed:
    """What the model is told, and the selection in it, None where that does not stand in the codex.

    What is told is never read back: anybody may write such a sentence into an attachment of theirs.
    """

    attachment: AttachmentView
    selection: Passage | None = None


def pointed(client: Mapping[str, str], codex_state: CodexState | None, read: Read) -> Pointed | None:
    """`read` gives the text of a path and digest, and may raise CodexError. For a worker thread."""
    file, marked = " ".join(client.get("file", "").split()), client.get("selection", "")
    if not file and not marked.strip():
        return None  # blanks
    path = codex_state.files.meant(file) if codex_state is not None and file else None
    text = text_of(path, codex_state, read) if path and codex_state is not None and marked.strip() else ""
    lines, marked = lines_of(marked, text), marked.strip("\n")
    found = Passage(path, lines[0], marked) if path and lines else None
    return Pointed(AttachmentView(name=NAME, text=words(path or file, marked, lines)), found)


def pointing(client: Mapping[str, str]) -> bool:
    """Whether an editor told anything; a terminal does not."""
    return bool(client.get("file") or client.get("selection"))


def words(file: str, selection: str, lines: tuple[int, int] | None) -> str:
    opened = f"The user has {file} open." if file else ""
    if not selection:
        return opened
    place = f" {file}:{lines[0]}-{lines[1]}" if lines else ""
    return f"{opened} Selected is{place}:\n\n{selection}".lstrip()


def text_of(path: str, codex_state: CodexState, read: Read) -> str:
    """The file as it is now; '' where it is gone or no longer kept."""
    digest = effective(codex_state.generation.digests(), codex_state.log).get(path)
    try:
        return read(path, digest) if digest else ""
    except CodexError:
        return ""


def lines_of(selection: str, text: str) -> tuple[int, int] | None:
    """First and last line, from 1, of what stands there exactly once."""
    wanted = selection.strip("\n").replace("\r\n", "\n")
    at = text.find(wanted)
    if not wanted.strip() or at < 0 or text.find(wanted, at + 1) >= 0:  # `str.count` passes over what overlaps
        return None
    start = text.count("\n", 0, at) + 1
    return start, start + wanted.count("\n")
