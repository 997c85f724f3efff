"""Where the asking person stands, as their editor tells it: the open file and what is selected there.

It leads the attachments of the question. The lines are those of the codex, so that an answer can cite them; a selection
that does not stand there, because it was not saved yet or occurs twice, is told without lines.
"""

import re
from collections.abc import Callable, Mapping

from codex.amendments import effective
from codex.errors import CodexError
from formatters.context import Attachment
from orchestrator.shelf.standing import Standing

NAME = "where the user is"
SELECTED = re.compile(r"Selected is (?P<path>.+):(?P<start>\d+)-\d+:\n\n")  # as `words` writes it

Read = Callable[[str, str], str]


def pointed(client: Mapping[str, str], standing: Standing | None, read: Read) -> tuple[Attachment, ...]:
    """`read` gives the text of a path and digest, and may raise CodexError. For a worker thread."""
    file, selection = " ".join(client.get("file", "").split()), client.get("selection", "")
    if not file and not selection.strip():
        return ()  # blanks
    path = standing.files.meant(file) if standing is not None and file else None
    text = text_of(path, standing, read) if path and standing is not None and selection.strip() else ""
    return (Attachment(name=NAME, text=words(path or file, selection.strip("\n"), lines_of(selection, text))),)


def pointing(client: Mapping[str, str]) -> bool:
    """Whether an editor told anything; a terminal does not."""
    return bool(client.get("file") or client.get("selection"))


def words(file: str, selection: str, lines: tuple[int, int] | None) -> str:
    opened = f"The user has {file} open." if file else ""
    if not selection:
        return opened
    place = f" {file}:{lines[0]}-{lines[1]}" if lines else ""
    return f"{opened} Selected is{place}:\n\n{selection}".lstrip()


def selected(attachment: Attachment) -> tuple[str, int, str] | None:
    """Path, first line and text of what was selected, where that is known to stand in the codex."""
    found = SELECTED.search(attachment.text) if attachment.name == NAME else None
    return (found["path"], int(found["start"]), attachment.text[found.end() :]) if found else None


def text_of(path: str, standing: Standing, read: Read) -> str:
    """The file as it is now; '' where it is gone or no longer kept."""
    digest = effective(standing.generation.digests(), standing.log).get(path)
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
