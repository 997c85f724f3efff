"""The turn's typed context, which is all that formatters and tools may know; and what a plug-in is.

The context is one frozen, validated value, made once per turn and passed as `ctx.deps`. It holds values and no handles: no
connection, clock or engine. Levels are words, because a number left of State would change the prefix with every reading.

Each block has one built-in writer (`formatters.writers`). An artifact injector adds items to a block after the writer's;
all that are installed are used, or those that a setting names. A prompt template writes a block in the writer's place,
where a setting names it.

Laws of formatters, held by `formatters.testing`:
 1. Pure: the same context gives the same items, in any process, on any day. No clock, no sensor, no randomness, no I/O.
 2. Every item without a role ends with a newline.
 3. Keys come from what an item *is* (path, number in a log, turn), never from a query's ranks, and are unique.
 4. Left of State nothing depends on the query, the turns or the evidence, and in the floor nothing but identity and
    codex counts; else the prefix is lost with every question.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, Self, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from formatters.blocks import BlockKind, Item, Role

Word = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z _-]*$")]
"""A level in words, such as `calm` or `on battery`: no digits."""

Line = Annotated[str, StringConstraints(pattern=r"^[^\r\n]*$")]
"""Text without line breaks: names and paths, which are part of a heading line."""


class ContextView(BaseModel):
    """Base of all parts. Frozen, typos refused; parts that are already views are taken as they are, not copied."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolView(ContextView):
    """One tool as the prompt describes it."""

    name: Line
    description: str = ""
    parameters_json_schema: Mapping[str, Any] = Field(default_factory=dict)


View = TypeVar("View", bound=ContextView)


def changed(view: View, **fields: object) -> View:
    """The view with these fields; the very same where it has them already, so that nothing of it is written anew."""
    had = ((getattr(view, name), value) for name, value in fields.items())
    return view if all(one is value or one == value for one, value in had) else view.model_copy(update=fields)


class IdentityView(ContextView):
    """Who answers. `tools` is the stable superset for the codex: a call of a tool that the sigil may not use is refused.
    `calling`: a call as the model's chat template writes one."""

    name: Line
    version: Line = ""
    text: str = ""
    tools: tuple[ToolView, ...] = ()
    calling: str = ""


class SigilView(ContextView):
    """Who asks, and what they may do."""

    name: Line
    uid: int
    scopes: frozenset[Line] = frozenset()


class CodexPiece(ContextView):
    """One file in the codex's coverage. `kind`: full, skeleton, or line, whose text names what the file defines."""

    path: Line
    text: str
    kind: Word = "full"


class AmendmentView(ContextView):
    """Entry `number` of a generation's change log; `text` is the new content of `path`, or that it was removed."""

    number: int = Field(ge=0)
    path: Line
    text: str


class CodexView(ContextView):
    """One generation of a codex. `pieces` are in floor order, which is frozen with the generation.

    Take the same view for every turn on the same generation: what is written from it is then written once.
    """

    name: Line
    root: str = ""
    generation: int = 0
    branch: Line = ""
    revision: Line = ""
    tier: Word = "full"
    pieces: tuple[CodexPiece, ...] = ()
    amendments: tuple[AmendmentView, ...] = ()


class KarmaEntry(ContextView):
    """One remembered thing under a heading of its block, such as `Known Information`. `source` is its record; `short`: what
    may stand in the place of the text where room is needed, '' for nothing."""

    heading: Line
    text: str
    source: Line = ""
    node: Line = ""
    short: str = ""
    pinned: bool = False


class EnvironmentView(ContextView):
    """Levels and circumstances, pinned per conversation and renewed when a level changes. Empty values are left out.
    `about`: what is remembered of the user, and the procedures that are known; `calling`: a call as the model's chat
    template writes one, where Identity has no tools and does not show it."""

    vram: Word | None = None
    power: Word | None = None
    network: Word | None = None
    available_tools: tuple[Line, ...] | None = None
    client_system: tuple[str, ...] = ()
    client_tools: tuple[ToolView, ...] = ()
    calling: str = ""
    about: tuple[KarmaEntry, ...] = ()


class KarmaView(ContextView):
    """What is remembered, in the order it was pinned in."""

    entries: tuple[KarmaEntry, ...] = ()


class AttachmentView(ContextView):
    """A file or standard input that came with the question. `verbatim`: the user's own words, kept to the letter over all
    later turns."""

    name: Line
    text: str
    verbatim: bool = False


class Evidence(ContextView):
    """A passage fetched for the question: lines start to end, both from 1 and inclusive."""

    path: Line
    start: int = Field(ge=1)
    end: int = Field(ge=1)
    text: str
    symbol: Line = ""

    @model_validator(mode="after")
    def _runs_forwards(self) -> Self:
        if self.end < self.start:
            raise ValueError(f"{self.path}: lines {self.start} to {self.end} run backwards")
        return self


class NoteView(ContextView):
    """What the model is told beside the question: of the frame, of the user's absence. `node`: of the relevance gate."""

    node: Line
    text: str


class Artifacts(ContextView):
    """What precedes the words of a turn: amendments of the codex, attachments, evidence, notes. `left_out`: nodes of
    plug-ins whose items it lacks, as the relevance gate decided for that turn."""

    amendments: tuple[AmendmentView, ...] = ()
    attachments: tuple[AttachmentView, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    notes: tuple[NoteView, ...] = ()
    left_out: tuple[Line, ...] = ()


class CallView(ContextView):
    """A call of a tool. `arguments` are JSON."""

    id: str
    name: str
    arguments: str


class TurnView(Artifacts):
    """A turn that has ended: its artifacts, and the speaker's words, unchanged. `calls`: those of a client's tools in an
    assistant's words, and of a result of our own tool its call; `answers`: the id of the call that a client's result
    belongs to."""

    role: Role
    text: str
    calls: tuple[CallView, ...] = ()
    answers: str = ""


class GistView(ContextView):
    """The questions `first` to `last` of a conversation, counted from 1, with their answers, in short."""

    first: int = Field(ge=1)
    last: int = Field(ge=1)
    text: str


class StateView(Artifacts):
    """The conversation so far; its own artifacts belong to the question being asked. `gone`: how many of its earliest
    questions are not in `turns`; `gists` stand in their place."""

    turns: tuple[TurnView, ...] = ()
    gone: int = Field(default=0, ge=0)
    gists: tuple[GistView, ...] = ()

    def closed(self, query: str, *after: TurnView) -> Self:
        """The state after this turn: the question with its artifacts, then the messages after it."""
        asked = TurnView(
            role=Role.USER,
            text=query,
            amendments=self.amendments,
            attachments=self.attachments,
            evidence=self.evidence,
            notes=self.notes,
            left_out=self.left_out,
        )
        return type(self)(turns=(*self.turns, asked, *after), gone=self.gone, gists=self.gists)

    def reopened(self) -> "tuple[Self, str, tuple[TurnView, ...]] | None":
        """What `closed` was made of: the state before the last question, that question, and the messages after it. None
        where no question is left."""
        asked = next((at for at in reversed(range(len(self.turns))) if self.turns[at].role is Role.USER), None)
        if asked is None:
            return None
        came = {name: getattr(self.turns[asked], name) for name in Artifacts.model_fields}
        state = type(self)(turns=self.turns[:asked], gone=self.gone, gists=self.gists, **came)
        return state, self.turns[asked].text, self.turns[asked + 1 :]


class StrategyView(ContextView):
    """How this turn gets at what its prompt does not hold, in tokens; a tool may tell it, and no formatter writes it.

    `used`: of prompt and promised answer, before any tool was called.
    """

    name: Line
    reason: str
    confidence: float = 1.0
    content: int = 0
    window: int = 0
    used: int = 0
    retrieval_budget: int = 0
    steps: tuple[str, ...] = ()


class TurnContext(ContextView):
    """All inputs of one answer. `running`: the messages of this turn since the query, tool calls and results; `private`:
    nothing of it may be kept."""

    identity: IdentityView
    sigil: SigilView
    codex: CodexView | None = None
    environment: EnvironmentView = EnvironmentView()
    karma: KarmaView = KarmaView()
    state: StateView = StateView()
    query: str
    running: tuple[TurnView, ...] = ()
    private: bool = False
    strategy: StrategyView | None = None


@dataclass(frozen=True, slots=True)
class Turning:
    """What a formatter is given. `deps` has its name from pydantic-ai's `RunContext`, which formatters may be written for;
    nothing else of that is here."""

    deps: TurnContext


@runtime_checkable
class ArtifactInjector(Protocol):
    """Adds items to one block; any but Query, which is the user's own words.

    The registry puts `6/NAME/` before each key: injected items come after the block's own, and before a log of
    amendments or the words of a turn. An item without a node gets the injector's name.
    """

    @property
    def name(self) -> str: ...
    @property
    def block(self) -> BlockKind: ...
    def inject(self, ctx: Turning, /) -> Iterable[Item]:
        """Items to add, possibly none, in any order: their keys order them. May raise anything."""
        ...


@runtime_checkable
class PromptTemplate(Protocol):
    """Writes one block in the place of the built-in writer, where a setting names it: Environment or Karma. The floor is
    measured and shared, and State is cut by the governor, as the built-in writers wrote them."""

    @property
    def name(self) -> str: ...
    @property
    def block(self) -> BlockKind: ...
    def write(self, ctx: Turning, /) -> Iterable[Item]:
        """All items of the block, in any order: their keys order them. Where it raises, the built-in writer writes."""
        ...
