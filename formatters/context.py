"""The turn's typed context: everything that formatters and tools may know about the question being answered.

One frozen, validated value, made once per turn and passed as `ctx.deps`. It holds values and no
handles: no connection, clock or engine. Levels are words, because a number left of State would change the prefix with every
reading.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from formatters.blocks import Role

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


class IdentityView(ContextView):
    """The persona. `tools` is the stable superset for the codex: a call of a tool that the sigil may not use is refused."""

    name: Line
    version: Line = ""
    text: str = ""
    tools: tuple[ToolView, ...] = ()


class SigilView(ContextView):
    """Who asks, and what they may do."""

    name: Line
    uid: int
    scopes: frozenset[Line] = frozenset()


class CodexPiece(ContextView):
    """One file in the codex's coverage. `kind`: full, skeleton or map."""

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


class EnvironmentView(ContextView):
    """Levels and circumstances, pinned per conversation and renewed when a level changes. Empty values are left out."""

    vram: Word | None = None
    power: Word | None = None
    network: Word | None = None
    branch: Line = ""
    available_tools: tuple[Line, ...] | None = None
    client_system: tuple[str, ...] = ()
    client_tools: tuple[ToolView, ...] = ()


class KarmaEntry(ContextView):
    """One remembered thing under one of the block's headings, such as `Known Information`. `source` is its record."""

    heading: Line
    text: str
    source: Line = ""
    node: Line = ""
    pinned: bool = False
    verbatim: bool = False


class KarmaView(ContextView):
    """What is remembered, in the order it was pinned in."""

    entries: tuple[KarmaEntry, ...] = ()


class AttachmentView(ContextView):
    """A file or standard input that came with the question."""

    name: Line
    text: str


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


class Artifacts(ContextView):
    """What precedes the words of a turn: amendments of the codex, attachments, evidence."""

    amendments: tuple[AmendmentView, ...] = ()
    attachments: tuple[AttachmentView, ...] = ()
    evidence: tuple[Evidence, ...] = ()


class TurnView(Artifacts):
    """A turn that has ended: its artifacts, and the speaker's words, unchanged."""

    role: Role
    text: str


class StateView(Artifacts):
    """The conversation so far; its own artifacts belong to the question being asked."""

    turns: tuple[TurnView, ...] = ()

    def closed(self, query: str, *after: TurnView) -> Self:
        """The state after this turn: the question with its artifacts, then the messages after it."""
        asked = TurnView(
            role=Role.USER,
            text=query,
            amendments=self.amendments,
            attachments=self.attachments,
            evidence=self.evidence,
        )
        return type(self)(turns=(*self.turns, asked, *after))


class TurnContext(ContextView):
    """All inputs of one answer. `running`: the messages of this turn since the query, tool calls and results."""

    identity: IdentityView
    sigil: SigilView
    codex: CodexView | None = None
    environment: EnvironmentView = EnvironmentView()
    karma: KarmaView = KarmaView()
    state: StateView = StateView()
    query: str
    running: tuple[TurnView, ...] = ()
