"""When a codex gets its next floor: one table from events to effects. Pure: no clock, task, disk or engine.

Another floor is due when the log of changes has grown too long (`files`) or when an identity has changed (`identity`).
Both are prepared, computed and switched to in the same way. The resident floor serves until then.

    RESTING ─due─▶ WAITING ─idle, its turn─▶ PREPARING ─▶ COMPUTING ─▶ COMMITTING ─▶ RESTING
                    ▲    ▲                                    │ a question comes: what was computed stays
                    │    └────────────────────────────────────┘
                 STALLED ◀── from any step: the engine ended, or memory cannot be planned; it is tried again

Rules for one codex; the first match wins and is applied until none matches:

    1  it is held: a load runs, or another coverage is built     cancel; RESTING
    2  the step has ended well
       2a  prepared, and urgent                                  commit: the engine computes the floor for who asks
       2b  prepared, while a question runs                       WAITING
       2c  prepared                                              compute the floor beside the resident one
       2d  computed                                              commit
       2e  committed                                             RESTING
    3  the step has failed
       3a  by what passes                                        STALLED; wait for the engine
       3b  otherwise                                             RESTING; not again for the same cause until news of it
    4  nothing is due any more, before COMMITTING                cancel; RESTING
    5  RESTING, and what is due has not failed                   WAITING
    6  COMPUTING, and a question has begun                       cancel; WAITING
    7  COMPUTING, and it has become urgent                       cancel; WAITING
    8  WAITING, and urgent                                       prepare: it waits neither for an idle moment nor its turn
    9  WAITING, nobody asks, nothing is at work, and of those that wait it was asked about last      prepare

A floor is urgent when no conversation fits behind the resident one: nobody can ask before it is replaced.

    event               reported when                                            news of a failed one
    LoadBegan           a load or a build of another coverage begins             -
    LoadEnded           it has ended, well or not                                yes
    DiskChanged         changed files are in the log                             yes
    QuestionBegan       questions run, where none did                            -
    QuestionEnded       a question about the codex was answered, or has to wait  yes
    QuietBegan          nobody has asked for long enough                         -
    IdentityChanged     identity files were looked at, changed or not            no
    GrantChanged        the memory that may be used is another                   yes
    CodexForgotten           the codex is gone                                        -
    StepEnded           an effect has ended, well or not                         -
    EngineAnswers       a stalled codex may be tried again                       -
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class SuccessorPhase(StrEnum):
    RESTING = "resting"
    WAITING = "waiting"
    PREPARING = "preparing"
    COMPUTING = "computing"
    COMMITTING = "committing"
    STALLED = "stalled"


AT_WORK = frozenset({SuccessorPhase.PREPARING, SuccessorPhase.COMPUTING, SuccessorPhase.COMMITTING})
RUNNING = AT_WORK | {SuccessorPhase.STALLED}


@dataclass(frozen=True)
class DueFloor:
    """What the next floor is made of anew, and why in words: the next generation of the files, or, where `files` is '',
    the newest version of an identity. Both '': nothing is due."""

    files: str = ""
    identity: str = ""
    urgent: bool = False

    def __bool__(self) -> bool:
        return bool(self.files or self.identity)

    @property
    def reason(self) -> str:
        return self.files or self.identity


@dataclass(frozen=True)
class CodexFacts:
    """What an event reports of a codex. `used`: when it was asked about last, by any clock."""

    due: DueFloor = field(default_factory=DueFloor)
    used: float = 0.0


@dataclass(frozen=True)
class SuccessorState:
    """A codex in the table. `held`: loads and builds that run. `fault`: why the last step failed, until one ends well;
    `failed`: what was due then. `attempt` counts the steps begun: the end of an earlier one is ignored."""

    phase: SuccessorPhase = SuccessorPhase.RESTING
    facts: CodexFacts = field(default_factory=CodexFacts)
    held: int = 0
    fault: str = ""
    failed: DueFloor | None = None
    attempt: int = 0
    ended: "StepEnded | None" = None  # of the step that the phase names; consumed by rules 2 and 3


@dataclass(frozen=True)
class TableState:
    """`asking`: questions run. `quiet`: nobody has asked for long enough."""

    codices: Mapping[str, SuccessorState] = field(default_factory=dict)
    asking: bool = False
    quiet: bool = False

    def of(self, name: str) -> SuccessorState:
        return self.codices.get(name) or SuccessorState()

    def with_codex(self, name: str, codex: SuccessorState) -> "TableState":
        return replace(self, codices={**self.codices, name: codex})


# -- events


@dataclass(frozen=True)
class LoadBegan:
    name: str


@dataclass(frozen=True)
class LoadEnded:
    name: str
    facts: CodexFacts


@dataclass(frozen=True)
class DiskChanged:
    name: str
    facts: CodexFacts


@dataclass(frozen=True)
class QuestionBegan:
    pass


@dataclass(frozen=True)
class QuestionEnded:
    name: str
    facts: CodexFacts


@dataclass(frozen=True)
class QuietBegan:
    pass


@dataclass(frozen=True)
class IdentityChanged:
    facts: Mapping[str, CodexFacts]


@dataclass(frozen=True)
class GrantChanged:
    facts: Mapping[str, CodexFacts]


@dataclass(frozen=True)
class CodexForgotten:
    name: str


@dataclass(frozen=True)
class StepEnded:
    """`fault`: why it failed, '' when it did not; `passing`: the same may succeed once the engine answers."""

    name: str
    attempt: int
    fault: str = ""
    passing: bool = False
    facts: CodexFacts | None = None  # behind a commit


@dataclass(frozen=True)
class EngineAnswers:
    name: str
    attempt: int


Event = (
    LoadBegan
    | LoadEnded
    | DiskChanged
    | QuestionBegan
    | QuestionEnded
    | QuietBegan
    | IdentityChanged
    | GrantChanged
    | CodexForgotten
    | StepEnded
    | EngineAnswers
)


# -- effects


@dataclass(frozen=True)
class PrepareFloor:
    """Build what the next floor holds; it changes nothing that serves."""

    name: str
    attempt: int
    due: DueFloor


@dataclass(frozen=True)
class ComputeFloor:
    """ComputeFloor the prepared floor beside the resident one."""

    name: str
    attempt: int


@dataclass(frozen=True)
class CommitFloor:
    """The codex is served on the prepared floor from now on, and older ones are released."""

    name: str
    attempt: int


@dataclass(frozen=True)
class AwaitEngine:
    """Report `EngineAnswers` when the engine can compute again."""

    name: str
    attempt: int


@dataclass(frozen=True)
class CancelStep:
    """End the effect that runs for this codex."""

    name: str


Effect = PrepareFloor | ComputeFloor | CommitFloor | AwaitEngine | CancelStep


# -- the decision


def decide(state: TableState, event: Event) -> tuple[TableState, tuple[Effect, ...]]:
    """The state behind an event, and what is to be done, in this order."""
    before, state = state, noted(state, event)
    effects: list[Effect] = []
    if isinstance(event, CodexForgotten) and before.of(event.name).phase not in (
        SuccessorPhase.RESTING,
        SuccessorPhase.WAITING,
    ):
        effects.append(CancelStep(event.name))
    while (found := next(_matches(state), None)) is not None:
        name, codex, effect = found
        state = state.with_codex(name, codex)
        effects += effect
    return state, tuple(effects)


def noted(state: TableState, event: Event) -> TableState:
    """The state with what the event reports in it; nothing is decided."""
    match event:
        case QuestionBegan():
            return replace(state, asking=True, quiet=False)
        case QuietBegan():
            return replace(state, asking=False, quiet=True)
        case LoadBegan(name):
            codex = state.of(name)
            return state.with_codex(name, replace(codex, held=codex.held + 1, fault="", failed=None))
        case CodexForgotten(name):
            return replace(state, codices={one: codex for one, codex in state.codices.items() if one != name})
        case StepEnded() | EngineAnswers():
            return _ended_or_back(state, event)
        case IdentityChanged(facts):
            return _with_facts(state, facts, news=False)
        case GrantChanged(facts):
            return _with_facts(state, facts)
        case DiskChanged(name, one) | QuestionEnded(name, one):
            return _with_facts(state, {name: one})
        case LoadEnded(name, one):
            codex = state.of(name)
            return _with_facts(state.with_codex(name, replace(codex, held=max(0, codex.held - 1))), {name: one})


def _with_facts(state: TableState, facts: Mapping[str, CodexFacts], *, news: bool = True) -> TableState:
    """`news`: what failed may be tried again."""
    for name, one in facts.items():
        codex = state.of(name)
        state = state.with_codex(name, replace(codex, facts=one, failed=None if news else codex.failed))
    return state


def _ended_or_back(state: TableState, event: StepEnded | EngineAnswers) -> TableState:
    """Unchanged by what is reported of a step that was cancelled when it had just ended."""
    name, codex = event.name, state.of(event.name)
    if codex.attempt != event.attempt or codex.phase not in RUNNING:
        return state
    if isinstance(event, StepEnded):
        return state.with_codex(name, replace(codex, ended=event, facts=event.facts or codex.facts))
    return state.with_codex(name, replace(codex, phase=SuccessorPhase.WAITING))


Match = tuple[str, SuccessorState, list[Effect]]


def _matches(state: TableState) -> Iterator[Match]:
    """What the rules change, for the first codex that one of them matches."""
    for name, codex in state.codices.items():
        found = _held(name, codex) or _stepped(state, name, codex) or _due(state, name, codex)
        if found is not None:
            yield found


def _held(name: str, codex: SuccessorState) -> Match | None:
    if codex.held and codex.phase is not SuccessorPhase.RESTING:
        return _ended(name, codex)  # 1
    return None


def _stepped(state: TableState, name: str, codex: SuccessorState) -> Match | None:
    ended = codex.ended
    if ended is None:
        return None
    codex = replace(codex, ended=None)
    if ended.fault and ended.passing:
        stalled = replace(codex, phase=SuccessorPhase.STALLED, fault=ended.fault)
        return name, stalled, [AwaitEngine(name, codex.attempt)]  # 3a
    if ended.fault:
        return name, replace(codex, phase=SuccessorPhase.RESTING, fault=ended.fault, failed=codex.facts.due), []  # 3b
    if codex.phase is SuccessorPhase.COMMITTING:
        return name, replace(codex, phase=SuccessorPhase.RESTING, fault=""), []  # 2e
    if codex.phase is SuccessorPhase.PREPARING and not codex.facts.due.urgent:
        if state.asking:
            return name, replace(codex, phase=SuccessorPhase.WAITING), []  # 2b
        return _step(name, codex, SuccessorPhase.COMPUTING)  # 2c
    return _step(name, codex, SuccessorPhase.COMMITTING)  # 2a, 2d


def _due(state: TableState, name: str, codex: SuccessorState) -> Match | None:
    due, phase = codex.facts.due, codex.phase
    if codex.held:
        return None
    if phase is SuccessorPhase.RESTING:
        return (
            (name, replace(codex, phase=SuccessorPhase.WAITING, fault=""), []) if due and due != codex.failed else None
        )  # 5
    if not due and phase is not SuccessorPhase.COMMITTING:
        return _ended(name, codex)  # 4
    if phase is SuccessorPhase.COMPUTING and (state.asking or due.urgent):
        return name, replace(codex, phase=SuccessorPhase.WAITING), [CancelStep(name)]  # 6, 7
    if phase is SuccessorPhase.WAITING and (due.urgent or _is_next(state, name)):
        return _step(name, codex, SuccessorPhase.PREPARING)  # 8, 9
    return None


def _is_next(state: TableState, name: str) -> bool:
    """Whether nobody asks, nothing is at work, and no other that waits was asked about later."""
    if not state.quiet or any(one.phase in AT_WORK for one in state.codices.values()):
        return False
    waiting = [one for one, codex in state.codices.items() if _waits(codex)]
    return name == max(waiting, key=lambda one: (state.of(one).facts.used, one))


def _waits(codex: SuccessorState) -> bool:
    """Also one that rule 5 has not reached yet."""
    resting = codex.phase is SuccessorPhase.RESTING and codex.facts.due != codex.failed
    return not codex.held and bool(codex.facts.due) and (codex.phase is SuccessorPhase.WAITING or resting)


def _step(name: str, codex: SuccessorState, phase: SuccessorPhase) -> Match:
    attempt = codex.attempt + 1
    begun = replace(codex, phase=phase, attempt=attempt)
    if phase is SuccessorPhase.PREPARING:
        return name, begun, [PrepareFloor(name, attempt, codex.facts.due)]
    return (
        name,
        begun,
        [ComputeFloor(name, attempt) if phase is SuccessorPhase.COMPUTING else CommitFloor(name, attempt)],
    )


def _ended(name: str, codex: SuccessorState) -> Match:
    """No step of it runs any more."""
    runs = codex.phase is not SuccessorPhase.WAITING
    return name, replace(codex, phase=SuccessorPhase.RESTING, ended=None), [CancelStep(name)] if runs else []
