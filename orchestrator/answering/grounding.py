"""Where words are found in the files of a codex: an answer's, in what the prompt held, and what a user selected. Pure.

An answer that quotes gets the place of its quote, also when it names none: the model need not count lines. A place that it
names is checked against everything that its prompt held: the codex's block, its amendments, evidence, attachments, results
of tools, and the places that the user named.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from codex.citations import Files, ShownLines, check, cited
from codex.errors import CodexError
from codex.following.amendments import Amendment, ChangeKind, effective
from formatters.blocks import Role
from formatters.context import Artifacts, AttachmentView, CodexPiece, Evidence, TurnContext, TurnView
from orchestrator.codices.known_lines import EXCERPT, Span, base_of, known_now, laid_over, spans_now
from orchestrator.codices.state import CodexState
from orchestrator.wire.answers import Citation

LEAST = 12  # characters: shorter lines are found everywhere
MOST_QUOTES = 5
MOST_LINES = 40  # of an answer that are looked for: 5 ms on a codex of 100,000 tokens
FOUND_FIRST = 3  # of a question's passages: the rest was fetched for every question alike
NAME = "where the user is"  # of the attachment that has what an editor reports

Read = Callable[[str, str], str]
"""The text of a path and digest. May raise CodexError."""


@dataclass(frozen=True)
class Passage:
    """`start` is the number of the first line."""

    path: str
    start: int
    text: str


@dataclass(frozen=True)
class AnswerSources:
    """What an answer was shown: its turn with what was said in it (`running`), the codex's log, its files now, and what the
    user selected in one of them."""

    turn: TurnContext
    running: Sequence[TurnView] = ()
    log: Sequence[Amendment] = ()
    files: Files = field(default_factory=lambda: Files({}))
    selection: Passage | None = None

    @property
    def pieces(self) -> Sequence[CodexPiece]:
        return self.turn.codex.pieces if self.turn.codex else ()

    @property
    def turns(self) -> Sequence[Artifacts]:
        """All turns, the one being answered among them, with what came with each."""
        return (*self.turn.state.turns, self.turn.state, *self.running)


def citations_of(answer: str, sources: AnswerSources) -> tuple[Citation, ...]:
    """Places that the answer names, each checked against what was shown, then places that it quotes."""
    attached = {file.name: line_count(file.text) for one in sources.turns for file in one.attachments}
    files = Files(attached, sources.files)
    named = cited(answer, files.is_file)
    shown = shown_of(sources, files, {path for one in named if (path := files.meant(one.path)) is not None})
    checked = check(named, files, shown)
    places = [Citation.of(one) for one in checked]
    return tuple(dict.fromkeys([*places, *quotes(answer, sources.turn.query, passages_of(sources))]))


def used_of(citations: Sequence[Citation], evidence: Sequence[Evidence]) -> list[str]:
    """Files that an answer rests on: those that it names or quotes; where it does neither, those found first for it."""
    cited_ones = [one.path for one in citations if one.valid]
    return list(dict.fromkeys(cited_ones or [one.path for one in evidence][:FOUND_FIRST]))


# -- what was shown


def shown_of(sources: AnswerSources, files: Files, paths: Iterable[str]) -> ShownLines:
    """What of these files the prompt held, in any form, by the numbers that its lines have now."""
    base = base_of(sources.pieces)
    spans: dict[str, list[Span]] = defaultdict(list)
    heads: dict[str, set[int]] = defaultdict(set)
    for path in paths:
        known = known_now(path, base, sources.log)
        spans[path] += [(1, files.count(path))] if known.whole else known.spans
        heads[path] |= {head.number for head in known.heads}
        spans[path] += _spans_beside(path, sources, files)
    return ShownLines(spans, heads)


def _spans_beside(path: str, sources: AnswerSources, files: Files) -> Iterator[Span]:
    """What the prompt held beside floor and log. Lines of earlier turns are moved by the amendments reported since."""
    changes = [entry for entry in sources.log if entry.path == path]
    for reported, one in _turns_with_reported(sources):
        later = [entry for entry in changes if entry.number > reported]
        yield from (now for span in _spans_in(one, path, files) for now in spans_now(span, later))
        yield from ((1, line_count(file.text)) for file in one.attachments if file.name == path)
    yield from _named_in(path, sources.turn.query, files)
    if sources.selection is not None and sources.selection.path == path:
        yield sources.selection.start, sources.selection.start + sources.selection.text.count("\n")


def _turns_with_reported(sources: AnswerSources) -> Iterator[tuple[int, Artifacts]]:
    """All turns, each with the newest entry of the log that was reported by then."""
    reported = max((one.number for one in sources.turn.codex.amendments), default=0) if sources.turn.codex else 0
    for one in sources.turns:
        reported = max([reported, *(amendment.number for amendment in one.amendments)])
        yield reported, one


def _spans_in(one: Artifacts, path: str, files: Files) -> Iterator[Span]:
    """Passages of a file that came with a turn, and places in it that the user or a tool named."""
    yield from ((found.start, found.end) for found in one.evidence if found.path == path)
    if isinstance(one, TurnView) and one.role is not Role.ASSISTANT:
        yield from _named_in(path, one.text, files)
    for file in one.attachments:
        yield from _named_in(path, file.text, files)


def _named_in(path: str, text: str, files: Files) -> Iterator[Span]:
    for line in _lines_with(path.rpartition("/")[2], text):
        yield from ((one.start, one.end) for one in cited(line, files.is_file) if files.meant(one.path) == path)


def _lines_with(name: str, text: str) -> list[str]:
    """A log that a user attached may be large, and only what it says of this file matters."""
    return [line for line in text.splitlines() if name in line] if name in text else []


def line_count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and bool(text))


# -- what was quoted


def passages_of(sources: AnswerSources) -> list[Passage]:
    """The code as the prompt held it: what is selected, evidence, what changed, newest first, and the rest."""
    evidence = [Passage(one.path, one.start, one.text) for one in sources.turn.state.evidence]
    selected = [sources.selection] if sources.selection is not None else []
    base = {one.path: one.text for one in sources.pieces if one.kind == "full"}
    latest = {entry.path: entry for entry in sources.log}
    changed = sorted(latest.values(), key=lambda entry: entry.number, reverse=True)
    untouched = [Passage(path, 1, text) for path, text in base.items() if path not in latest]
    return [
        *selected,
        *evidence,
        *(one for entry in changed for one in _reported_text(entry, base, sources.log)),
        *untouched,
    ]


def _reported_text(entry: Amendment, base: Mapping[str, str], log: Sequence[Amendment]) -> Iterator[Passage]:
    if entry.kind in (ChangeKind.RESTORED, ChangeKind.MOVED):
        source = base.get(entry.source or entry.path)
        if source is not None:
            yield Passage(entry.path, 1, source)
    elif entry.whole:
        if entry.text:
            yield Passage(entry.path, 1, entry.text)
    else:
        now = _as_now(entry.path, base, log)
        yield from _excerpts(entry) if now is None else (Passage(entry.path, 1, now),)


def _excerpts(entry: Amendment) -> Iterator[Passage]:
    heads = list(EXCERPT.finditer(entry.text))
    ends = [head.start() for head in heads[1:]] + [len(entry.text)]
    for head, end in zip(heads, ends, strict=True):
        yield Passage(entry.path, int(head[1]), entry.text[head.end() : end])


def _as_now(path: str, base: Mapping[str, str], log: Sequence[Amendment]) -> str | None:
    """A file with its changed parts laid over it, so that lines that only moved have their new numbers; None where the
    prompt never held all of it."""
    now = base.get(path)
    for entry in log:
        if entry.path == path and entry.kind in (ChangeKind.REMOVED, ChangeKind.MOVED):
            now = None
        elif entry.path == path and entry.kind is ChangeKind.RESTORED:
            now = base.get(path)
        elif entry.path == path:
            now = entry.text if entry.whole else None if now is None else laid_over(now, entry.text)
    return now


def quotes(answer: str, question: str, shown: Iterable[Passage]) -> list[Citation]:
    """Where the answer's lines are found to the letter. The first continues the question, as a quoting model's does."""
    wanted = quotable(answer, question)
    found: list[Citation] = []
    for passage in shown:
        for text in wanted:
            at = passage.text.find(text)
            if at >= 0:
                line = passage.start + passage.text.count("\n", 0, at)
                found.append(Citation(path=passage.path, start=line, end=line + text.count("\n"), valid=True))
        if len(found) >= MOST_QUOTES:
            break
    return found[:MOST_QUOTES]


def quotable(answer: str, question: str) -> list[str]:
    """What to look for: the end of the question with the answer's first line, else the answer's own long lines."""
    lines = [line.strip() for line in answer.strip().splitlines() if line.strip()]
    if not lines:
        return []
    joined = question.rstrip().rpartition("\n")[2].lstrip() + answer.rstrip("\n").partition("\n")[0]
    return [text for text in dict.fromkeys([joined, *lines]) if len(text) >= LEAST][:MOST_LINES]


# -- what the user points at


@dataclass(frozen=True)
class Pointed:
    """What the model gets of the user's editor, and the selection, None where the codex does not have it.

    The attachment is never read back: anybody may write such a sentence into an attachment of theirs.
    """

    attachment: AttachmentView
    selection: Passage | None = None


def pointed(client: Mapping[str, str], codex_state: CodexState | None, read: Read) -> Pointed | None:
    """What an editor reports with a question. For a worker thread."""
    file, marked = " ".join(client.get("file", "").split()), client.get("selection", "")
    if not file and not marked.strip():
        return None  # blanks
    path = codex_state.files.meant(file) if codex_state is not None and file else None
    text = text_of(path, codex_state, read) if path and codex_state is not None and marked.strip() else ""
    lines, marked = lines_of(marked, text), marked.strip("\n")
    found = Passage(path, lines[0], marked) if path and lines else None
    return Pointed(AttachmentView(name=NAME, text=words(path or file, marked, lines)), found)


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
    """First and last line, from 1, of what is found there exactly once."""
    wanted = selection.strip("\n").replace("\r\n", "\n")
    at = text.find(wanted)
    if not wanted.strip() or at < 0 or text.find(wanted, at + 1) >= 0:  # `str.count` passes over what overlaps
        return None
    start = text.count("\n", 0, at) + 1
    return start, start + wanted.count("\n")
