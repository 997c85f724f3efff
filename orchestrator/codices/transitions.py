"""When a codex gets its next floor: one table from events to effects. Pure: no clock, task, disk or engine.

Another floor is due when memory allows or demands another coverage (`coverage`), when the log of changes has grown too long
(`files`), or when an identity has changed (`identity`). All are prepared, computed and committed by the same steps. The
resident floor serves until then.

    RESTING ─due─▶ WAITING ─idle, its turn─▶ PREPARING ─▶ COMPUTING ─▶ COMMITTING ─▶ RESTING
                    ▲    ▲                                    │ a question comes: what was computed stays
                    │    └────────────────────────────────────┘
                 STALLED ◀── from any step: the engine ended, another load has the files, or memory cannot be planned;
                             it is tried again

Rules for one codex; the first match wins and is applied until none matches:

    1  it is held: a load runs                                cancel; RESTING
    2  the step has ended well
       2a  prepared, and urgent                               COMMITTING: the engine computes the floor for who asks
       2b  prepared, and not quiet                            WAITING
       2c  prepared                                           COMPUTING, beside the resident floor
       2d  computed                                           COMMITTING
       2e  committed                                          RESTING
       2f  the engine answers                                 WAITING
    3  the step has failed
       3a  by what passes, and it was not STALLED             STALLED: wait for it
       3b  otherwise                                          RESTING; not again for the same cause until news of it
    4  nothing is due any more, before COMMITTING             cancel; RESTING
    5  RESTING, and what is due has not failed                WAITING
    6  COMPUTING, and no longer quiet                         cancel; WAITING
    7  COMPUTING, and it has become urgent                    cancel; WAITING
    8  COMPUTING, and another identity is due than is made    cancel; WAITING
    9  WAITING, and urgent                                    PREPARING: it waits neither for quiet nor its turn
   10  WAITING, quiet, nothing is at work, and of those that wait it has waited long, or was
       asked about last                                                                       PREPARING

A floor is urgent when the resident one must go: no conversation fits behind it, or memory is scarce. Of several codices
that a rule matches, the one that was asked about longest ago comes first: idle ones step down before others.

It is quiet for a codex while nobody asks; and where somebody asks without pause, once it has waited for so long that this
is not to be expected, and memory holds its next floor beside all that is asked. The engine computes it beside answers then,
in at most half of their time. While power is saved it is never quiet.

    event             reported when                                             news of a failed one
    LoadBegan         a load begins                                             -
    LoadEnded         it has ended, well or not                                 yes
    DiskChanged       changed files are in the log                              yes
    QuestionBegan     questions run, where none did                             -
    QuestionEnded     a question about the codex was answered, or has to wait   yes
    QuietBegan        nobody has asked for long enough                          -
    IdentityChanged   identity files were looked at, changed or not             no
    GrantChanged      the memory that may be used is another                    yes
    PowerChanged      power is saved from now on, or no more: it is not quiet   -
    WaitedLong        its next floor has been on its way for long               -
    CodexForgotten    the codex is gone                                         -
    StepEnded         an effect has ended, well or not                          -
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class SuccessorPhase(StrEnum):
    RESTING = "resting"
    WAITING = "waiting"
    PREPARING = "preparing"
    COMPUTING = "computing"
    COMMITTING = "committing"
    STALLED = "stalled"


RESTING, WAITING, PREPARING, COMPUTING, COMMITTING, STALLED = SuccessorPhase
AT_WORK = frozenset({PREPARING, COMPUTING, COMMITTING})
RUNNING = AT_WORK | {STALLED}


@dataclass(frozen=True)
class DueFloor:
    """Why a next floor is due, in words; all '': none is. Of several causes one is named: a new coverage or generation is
    made under the newest identity anyway."""

    files: str = ""
    identity: str = ""
    coverage: str = ""
    urgent: bool = False

    def __bool__(self) -> bool:
        return bool(self.reason)

    @property
    def reason(self) -> str:
        return self.coverage or self.files or self.identity


@dataclass(frozen=True)
class CodexFacts:
    """What an event reports of a codex. `used`: when it was asked about last, by any clock. `roomy`: memory holds its next
    floor beside the resident one and what is asked on that."""

    due: DueFloor = field(default_factory=DueFloor)
    used: float = 0.0
    roomy: bool = False


@dataclass(frozen=True)
class SuccessorState:
    """A codex in the table. `held`: loads that run. `fault`: why the last step failed, until one ends well; `failed`: what
    was due then. `made`: what the steps were begun for. `attempt` counts the steps begun: the end of an earlier one is
    ignored. `long`: it has waited so long that it no longer waits for a pause, until it rests."""

    phase: SuccessorPhase = RESTING
    facts: CodexFacts = field(default_factory=CodexFacts)
    held: int = 0
    fault: str = ""
    failed: DueFloor | None = None
    made: DueFloor = field(default_factory=DueFloor)
    attempt: int = 0
    long: bool = False
    ended: "StepEnded | None" = None  # of the step that the phase names; consumed by rules 2 and 3


@dataclass(frozen=True)
class TableState:
    """`idle`: nobody has asked for long enough; `saving`: power is saved."""

    codices: Mapping[str, SuccessorState] = field(default_factory=dict)
    idle: bool = False
    saving: bool = False

    def quiet(self, codex: SuccessorState) -> bool:
        """Whether what nobody waits for may be done for this one."""
        return not self.saving and (self.idle or (codex.long and codex.facts.roomy))

    def of(self, name: str) -> SuccessorState:
        return self.codices.get(name) or SuccessorState()

    def with_codex(self, name: str, codex: SuccessorState) -> "TableState":
        return replace(self, codices={**self.codices, name: codex})


# -- events


@dataclass(frozen=True)
class LoadBegan:
    name: str


@dataclass(frozen=True)
class FactsReported:
    """What is due of some codices now, by name."""

    facts: Mapping[str, CodexFacts]


class LoadEnded(FactsReported):
    pass


class DiskChanged(FactsReported):
    pass


class QuestionEnded(FactsReported):
    pass


class IdentityChanged(FactsReported):
    pass


class GrantChanged(FactsReported):
    pass


@dataclass(frozen=True)
class QuestionBegan:
    pass


@dataclass(frozen=True)
class QuietBegan:
    pass


@dataclass(frozen=True)
class PowerChanged:
    saving: bool


@dataclass(frozen=True)
class WaitedLong:
    name: str


@dataclass(frozen=True)
class CodexForgotten:
    name: str


@dataclass(frozen=True)
class StepEnded:
    """`fault`: why it failed, '' when it did not; `passing`: the same may succeed in a moment."""

    name: str
    attempt: int
    fault: str = ""
    passing: bool = False
    facts: CodexFacts | None = None


Event = LoadBegan | FactsReported | QuestionBegan | QuietBegan | PowerChanged | WaitedLong | CodexForgotten | StepEnded


# -- effects


@dataclass(frozen=True)
class BeginStep:
    """Do what the phase names, and report its end.

    PREPARING   build what the next floor holds; changes nothing that serves
    COMPUTING   compute the prepared floor beside the resident one
    COMMITTING  have the codex served on the prepared floor, and release older ones
    STALLED     wait for a moment, and until the engine can compute
    """

    name: str
    attempt: int
    phase: SuccessorPhase
    due: DueFloor


@dataclass(frozen=True)
class CancelStep:
    """End the step that runs for this codex."""

    name: str


Effect = BeginStep | CancelStep


# -- the decision


def decide(state: TableState, event: Event) -> tuple[TableState, tuple[Effect, ...]]:
    """The state behind an event, and what is to be done, in this order."""
    before, state = state, noted(state, event)
    effects: list[Effect] = []
    if isinstance(event, CodexForgotten) and before.of(event.name).phase in RUNNING:
        effects.append(CancelStep(event.name))
    while (found := _first_match(state)) is not None:
        name, now = found
        was = state.of(name)
        if now.attempt != was.attempt:
            effects.append(BeginStep(name, now.attempt, now.phase, now.made))
        elif was.phase in RUNNING and was.ended is None:
            effects.append(CancelStep(name))
        state = state.with_codex(name, now)
    return state, tuple(effects)


def noted(state: TableState, event: Event) -> TableState:
    """The state with what the event reports in it; nothing is decided."""
    match event:
        case QuestionBegan() | QuietBegan():
            return replace(state, idle=isinstance(event, QuietBegan))
        case PowerChanged(saving):
            return replace(state, saving=saving)
        case LoadBegan(name):
            codex = state.of(name)
            return state.with_codex(name, replace(codex, held=codex.held + 1, fault="", failed=None))
        case WaitedLong(name):
            codex = state.of(name)
            return state if codex.phase is RESTING else state.with_codex(name, replace(codex, long=True))
        case CodexForgotten(name):
            return replace(state, codices={one: codex for one, codex in state.codices.items() if one != name})
        case StepEnded(name, attempt):
            codex = state.of(name)
            if codex.attempt != attempt or codex.phase not in RUNNING:
                return state  # of a step that was cancelled when it had just ended
            return state.with_codex(name, replace(codex, ended=event, facts=event.facts or codex.facts))
        case FactsReported(facts):
            for name, one in facts.items():
                codex = state.of(name)
                failed = codex.failed if isinstance(event, IdentityChanged) else None
                held = max(0, codex.held - 1) if isinstance(event, LoadEnded) else codex.held
                state = state.with_codex(name, replace(codex, facts=one, failed=failed, held=held))
            return state


def _first_match(state: TableState) -> tuple[str, SuccessorState] | None:
    """The codex that a rule matches, and what becomes of it; of several the one that was asked about longest ago."""
    oldest = sorted(state.codices.items(), key=lambda one: (one[1].facts.used, one[0]))
    after = ((name, _after(state, name, codex)) for name, codex in oldest)
    return next(((name, now) for name, now in after if now is not None), None)


def _after(state: TableState, name: str, codex: SuccessorState) -> SuccessorState | None:
    phase, due = codex.phase, codex.facts.due
    if codex.held:
        return None if phase is RESTING else _entered(codex, RESTING)  # 1
    if codex.ended is not None:
        return _after_step(state, codex, codex.ended)
    if phase is RESTING:
        return _entered(codex, WAITING, fault="") if due and due != codex.failed else None  # 5
    if not due and phase is not COMMITTING:
        return _entered(codex, RESTING)  # 4
    if phase is COMPUTING and (not state.quiet(codex) or due.urgent or due.identity != codex.made.identity):
        return _entered(codex, WAITING)  # 6, 7, 8
    if phase is WAITING and (due.urgent or _is_next(state, name)):
        return _entered(codex, PREPARING, made=due)  # 9, 10
    return None


def _after_step(state: TableState, codex: SuccessorState, ended: StepEnded) -> SuccessorState:
    phase, due = codex.phase, codex.facts.due
    if ended.fault and ended.passing and phase is not STALLED:
        return _entered(codex, STALLED, fault=ended.fault)  # 3a
    if ended.fault:
        return _entered(codex, RESTING, fault=ended.fault, failed=due)  # 3b
    if phase is STALLED:
        return _entered(codex, WAITING)  # 2f
    if phase is COMMITTING:
        return _entered(codex, RESTING, fault="")  # 2e
    if phase is COMPUTING or due.urgent:
        return _entered(codex, COMMITTING)  # 2a, 2d
    return _entered(codex, COMPUTING if state.quiet(codex) else WAITING)  # 2b, 2c


def _entered(codex: SuccessorState, phase: SuccessorPhase, **changes: Any) -> SuccessorState:
    attempt = codex.attempt + 1 if phase in RUNNING else codex.attempt
    long = codex.long and phase is not RESTING
    return replace(codex, phase=phase, ended=None, attempt=attempt, long=long, **changes)


def _is_next(state: TableState, name: str) -> bool:
    """Whether it is quiet for it, nothing is at work, and no other for which it is quiet comes before it."""
    if not state.quiet(state.of(name)) or any(one.phase in AT_WORK for one in state.codices.values()):
        return False
    waiting = [one for one, codex in state.codices.items() if _waits(codex) and state.quiet(codex)]
    return name == max(waiting, key=lambda one: (state.of(one).long, state.of(one).facts.used, one))


def _waits(codex: SuccessorState) -> bool:
    """Also one that rule 5 has not reached yet."""
    resting = codex.phase is RESTING and codex.facts.due != codex.failed
    return not codex.held and bool(codex.facts.due) and (codex.phase is WAITING or resting)
