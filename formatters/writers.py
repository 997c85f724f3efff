"""The built-in writers of the six blocks. Each obeys the laws of formatters (`formatters.context`).

Identity     Its text, then the tools in our own rendering, and a call as the chat template writes one. The template's own
             list of tools is not used: in most templates it lands right of the codex. The list is a superset that is the
             same for every sigil, so that permissions never change the prefix.
Codex        Every piece under a line with its path, unchanged; then the log of amendments. What changes while the files do
             not (generation, revision, branch) is left out: it would break the prefix of every conversation with each
             commit, and a new generation could not share the beginning of the old one.
Environment  Levels in words, who asks and what they may use, and what the client brought. A client's system message and
             tools are here, after the floor, so that no client can break another's prefix. What is remembered of the user
             comes last: it changes more often.
Karma        What is remembered, under its headings, in the order it was pinned in.
State        The earlier turns with their artifacts, then the artifacts of the question. A turn is written the same whether
             it is running or closed, so a closed turn keeps its prefix.

                 key within a turn   3/ amendments   4/ attachments   5/ evidence   6/ of plug-ins   8/ notes   9 the words

Query        The user's own words and nothing else, then what the running turn has appended since. The question is the last
             content of a prompt, unchanged: an answer continues it.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Generic, TypeVar

from formatters.blocks import BlockKind, Item, Role
from formatters.context import (
    AmendmentView,
    Artifacts,
    AttachmentView,
    CodexPiece,
    CodexView,
    EnvironmentView,
    Evidence,
    GistView,
    IdentityView,
    KarmaEntry,
    KarmaView,
    NoteView,
    SigilView,
    StateView,
    ToolView,
    TurnContext,
    TurnView,
)

_HOW_TO_CALL = "To call a tool, end your answer with the call:\n"
_AT_HAND = "Its result comes back as the next message. Tools at hand, with the JSON schema of their arguments:\n"
_AS_OTHERS = "They are called in the same way.\n"


Writer = Callable[[TurnContext], tuple[Item, ...]]


def writers() -> Mapping[BlockKind, Writer]:
    """What gives all items of each block. Each call makes writers of its own: what they remember is theirs."""
    # Two memos for the Codex: an amendment makes a new view, which still holds the same pieces.
    identity, codex = Memo(identity_items), Memo(partial(codex_items, Memo(_piece_items)))
    return {
        BlockKind.IDENTITY: lambda turn: identity(turn.identity),
        BlockKind.CODEX: lambda turn: codex(turn.codex) if turn.codex is not None else (),
        BlockKind.ENVIRONMENT: lambda turn: environment_items(turn.environment, turn.sigil),
        BlockKind.KARMA: lambda turn: karma_items(turn.karma),
        BlockKind.STATE: lambda turn: state_items(turn.state),
        BlockKind.QUERY: lambda turn: query_items(turn.query, turn.running),
    }


def tool_line(tool: ToolView) -> str:
    """One line of JSON with sorted keys: the same tool gives the same bytes in every process."""
    shown = {"description": tool.description, "name": tool.name, "parameters": dict(tool.parameters_json_schema)}
    return json.dumps(shown, ensure_ascii=False, sort_keys=True) + "\n"


def identity_items(identity: IdentityView) -> tuple[Item, ...]:
    text = _text(identity)
    return (*text, *_tools(identity)) if identity.tools else text


def _text(identity: IdentityView) -> tuple[Item, ...]:
    if not identity.text.strip():
        return ()
    text = identity.text.strip("\n") + "\n\n"
    return (Item("1", text, identity.name, node="identity_context", pinned=True),)


def _tools(identity: IdentityView) -> tuple[Item, ...]:
    lines = "".join(tool_line(tool) for tool in sorted(identity.tools, key=lambda tool: tool.name))
    text = section("Tools", _HOW_TO_CALL + ended(identity.calling) + _AT_HAND + lines)
    return (Item("3", text, "tools", node="identity_context", pinned=True),)


_INTRODUCTION = (
    "The files of this codebase follow, each under a line with its path. "
    "Answer from them and cite them as path:line. "
    "Where an amendment stands further below, it replaces what the file said before.\n"
)


LINE = "line"  # the kind of a piece that only names what its file defines
LINES_HEADING = "# Other files, with what they define. They can be searched.\n"


def codex_items(pieces: "Memo[tuple[CodexPiece, ...], tuple[Item, ...]]", codex: CodexView) -> tuple[Item, ...]:
    amended = (amendment_item(amendment, key="7") for amendment in codex.amendments)
    return (_heading(codex.name), *pieces(codex.pieces), *amended)


def amendment_item(amendment: AmendmentView, *, key: str, turn: int = 0) -> Item:
    """An entry of the change log, ordered by its number: in the Codex of a new conversation, in State of a running one."""
    text = passage(f"amendment {amendment.number}: {amendment.path}", amendment.text)
    return Item(f"{key}/{amendment.number:08d}", text, amendment.path, turn=turn, node="codex")


def _heading(name: str) -> Item:
    return Item("1", section(f"Codex {name}", _INTRODUCTION), name, node="codex", pinned=True)


def _piece_items(pieces: tuple[CodexPiece, ...]) -> tuple[Item, ...]:
    """The key is the place in the generation's frozen order, not the path: files that change often are last. Lines come
    behind all others, under a heading of their own."""
    shown = [piece for piece in pieces if piece.kind != LINE]
    lines = [piece for piece in pieces if piece.kind == LINE]
    return (
        *(Item(f"3/{place:08d}", piece_text(one), one.path, node="codex") for place, one in enumerate(shown)),
        *([Item("4", LINES_HEADING, "other files", node="codex")] if lines else []),
        *(Item(f"5/{place:08d}", piece_text(one), one.path, node="codex") for place, one in enumerate(lines)),
    )


def piece_text(piece: CodexPiece) -> str:
    """A file of the floor as it is written there."""
    if piece.kind == LINE:
        return f"{piece.path}: {piece.text}\n" if piece.text else f"{piece.path}\n"
    heading = piece.path if piece.kind == "full" else f"{piece.path} ({piece.kind})"
    return passage(heading, piece.text)


def environment_items(around: EnvironmentView, sigil: SigilView) -> tuple[Item, ...]:
    given = (*_allowed(around), *_system(around), *_client_tools(around.client_tools, around.calling))
    return (_world(around, sigil), *given, *remembered_items(around.about, "5"))


def _world(around: EnvironmentView, sigil: SigilView) -> Item:
    levels = {
        "GPU memory": around.vram,
        "Power": around.power,
        "Network": around.network,
        "Sigil": f"{sigil.name} ({', '.join(sorted(sigil.scopes)) or 'no scopes'})",
    }
    lines = "".join(f"{name}: {value}\n" for name, value in levels.items() if value)
    return Item("1", section("Environment", lines), "environment", node="world_state")


def _allowed(around: EnvironmentView) -> tuple[Item, ...]:
    if around.available_tools is None:
        return ()
    names = ", ".join(sorted(around.available_tools)) or "none"
    return (Item("2", f"Tools that may be called now: {names}\n\n", "sigil", node="available_tools"),)


def _system(around: EnvironmentView) -> tuple[Item, ...]:
    return tuple(
        Item(f"3/{place:08d}", section("Instructions of the client", text), "client", node="client_system")
        for place, text in enumerate(around.client_system)
    )


def _client_tools(tools: tuple[ToolView, ...], calling: str) -> tuple[Item, ...]:
    if not tools:
        return ()
    # In the client's order: it is the client's own prefix, and it sends the same list each time.
    how = _HOW_TO_CALL + ended(calling) if calling else _AS_OTHERS
    lines = "".join(tool_line(tool) for tool in tools)
    return (Item("4", section("Tools of the client", how + lines), "client", node="client_tools"),)


HEADINGS = (
    "Active Constraints",
    "Current Approach",
    "Current Focus",
    "Relevant Past Decisions",
    "Known Information",
    "Procedure",
    "Past Experience",
    "Note",
)
"""The headings in their order; any other heading comes after them."""


def karma_items(karma: KarmaView) -> tuple[Item, ...]:
    return remembered_items(karma.entries, "1")


def remembered_items(entries: Iterable[KarmaEntry], key: str) -> tuple[Item, ...]:
    """In the order of their headings, then in their own."""
    ordered = sorted(entries, key=lambda entry: (_heading_order(entry.heading), entry.heading))
    groups = groupby(ordered, key=lambda entry: entry.heading)
    return tuple(item for heading, group in groups for item in _remembered_section(key, heading, group))


def _remembered_section(key: str, heading: str, entries: Iterable[KarmaEntry]) -> Iterator[Item]:
    """The heading and each entry are items of their own, so that a trace names the record of each."""
    key = f"{key}/{_heading_order(heading):02d}/{heading}"
    yield Item(key, f"# {heading}\n", "karma", node="karma")
    for place, entry in enumerate(entries):
        yield Item(
            f"{key}/{place:04d}",
            remembered_line(entry.text),
            entry.source or "karma",
            node=entry.node or "karma",
            pinned=entry.pinned,
        )


def remembered_line(text: str) -> str:
    return ended(f"- {text}")


def _heading_order(heading: str) -> int:
    return HEADINGS.index(heading) if heading in HEADINGS else len(HEADINGS)


WORDS = "9"


def state_items(state: StateView) -> tuple[Item, ...]:
    earlier = [item for place, turn in enumerate(state.turns) for item in _turn(place, turn)]
    return (*map(gist_item, state.gists), *earlier, *_artifacts(len(state.turns), state))


def gist_item(gist: GistView) -> Item:
    """Before the first turn that is left. A later gist is an item behind it: what was written stays."""
    name = f"turn {gist.first}" if gist.first == gist.last else f"turns {gist.first} to {gist.last}"
    return Item(f"1/{gist.first:08d}", passage(f"{name} in short", gist.text), f"gist of {name}", node="gist")


def _turn(place: int, turn: TurnView) -> list[Item]:
    words = Item(WORDS, turn.text, turn.role, turn.role, place, "working_memory")
    return [*_artifacts(place, turn), words]


def _artifacts(turn: int, came: Artifacts) -> list[Item]:
    amended = [amendment_item(amendment, key="3", turn=turn) for amendment in came.amendments]
    return [*amended, *_attachments(turn, came.attachments), *_evidence(turn, came.evidence), *_notes(turn, came.notes)]


def _attachments(turn: int, came: tuple[AttachmentView, ...]) -> list[Item]:
    files, texts = [one for one in came if not one.verbatim], [one for one in came if one.verbatim]
    heads = (f"attachment {place} of {len(files)}: {file.name}" for place, file in enumerate(files, start=1))
    return [
        *_pinned(turn, "4", "attachments", zip(heads, files, strict=True)),
        *_pinned(turn, "4v", "verbatim", ((f"{one.name}: the user's own words, to the letter", one) for one in texts)),
    ]


def _pinned(turn: int, key: str, node: str, headed: Iterable[tuple[str, AttachmentView]]) -> Iterator[Item]:
    for place, (head, one) in enumerate(headed, start=1):
        yield Item(f"{key}/{place:04d}", passage(head, one.text), one.name, turn=turn, node=node, pinned=True)


def _evidence(turn: int, passages: tuple[Evidence, ...]) -> list[Item]:
    if not passages:
        return []
    passages = tuple(dict.fromkeys(passages))  # two searches may have found the same one
    count = f"{counted(len(passages), 'passage', 'passages')} of the codebase, found for this question:\n\n"
    return [Item("5", count, "archive", turn=turn, node="evidence"), *(_passage(turn, one) for one in passages)]


def _notes(turn: int, notes: tuple[NoteView, ...]) -> list[Item]:
    return [Item(f"8/{one.node}", f"({one.text})\n\n", one.node, turn=turn, node=one.node) for one in notes]


def _passage(turn: int, found: Evidence) -> Item:
    where = f"{found.path}:{found.start}-{found.end}"
    heading = f"{where} {found.symbol}" if found.symbol else where
    # By place in the code, not by rank: the same passages for another question are then the same items in the same order.
    key = f"5/{found.path}:{found.start:08d}-{found.end:08d} {found.symbol}"
    return Item(key, passage(heading, found.text), where, turn=turn, node="evidence")


def query_items(query: str, running: tuple[TurnView, ...]) -> tuple[Item, ...]:
    asked = Item("1", query, "user", Role.USER, node="query", pinned=True)
    since = (
        Item("1", turn.text, turn.role, turn.role, place, "act_history") for place, turn in enumerate(running, start=1)
    )
    return (asked, *since)


def section(heading: str, body: str) -> str:
    """A Markdown section that ends with an empty line."""
    return f"# {heading}\n{ended(body)}\n"


def passage(heading: str, body: str) -> str:
    """A quoted text under a heading line that code seldom holds. The text stays whole; it only gains a last newline."""
    return f"=== {heading} ===\n{ended(body)}\n"


def ended(text: str) -> str:
    """The text with a newline at its end; an empty one stays empty."""
    return text if not text or text.endswith("\n") else text + "\n"


def counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


Source = TypeVar("Source")
Written = TypeVar("Written")

_KEPT = 8  # generations and identities in use at a time; a dropped one is written again


class Memo(Generic[Source, Written]):
    """The last few results of a pure function, found by the identity of its frozen argument.

    By identity, because comparing thousands of pieces costs more than writing them. The argument is kept alive with its
    result: an address can then not be taken by another object.
    """

    def __init__(self, write: Callable[[Source], Written]) -> None:
        self._write = write
        self._kept: OrderedDict[int, tuple[Source, Written]] = OrderedDict()

    def __call__(self, source: Source) -> Written:
        found = self._kept.pop(id(source), None) or (source, self._write(source))
        self._kept[id(source)] = found
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return found[1]
