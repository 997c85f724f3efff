"""Laws of the table that decides when a codex gets its next floor, over random sequences of events.

A house of codices is modelled: each has files and an identity that change and change back, and a floor that is made of
both. What the table orders is done by the model, when the sequence says so.
"""

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st
from support.examples import few

from orchestrator.codices.transitions import (
    AT_WORK,
    BeginStep,
    CancelStep,
    CodexFacts,
    CodexForgotten,
    DiskChanged,
    DueFloor,
    GrantChanged,
    IdentityChanged,
    LoadBegan,
    LoadEnded,
    PowerChanged,
    QuestionBegan,
    QuestionEnded,
    QuietBegan,
    StepEnded,
    SuccessorPhase,
    TableState,
    WaitedLong,
    decide,
)

NAMES = ("a", "b", "c")


@dataclass
class House:
    """What is on disk and what is resident, by codex; and the effects that run."""

    state: TableState = field(default_factory=TableState)
    wanted: dict = field(default_factory=lambda: dict.fromkeys(NAMES, (0, 0)))
    resident: dict = field(default_factory=lambda: dict.fromkeys(NAMES, (0, 0)))
    scarce: set = field(default_factory=set)
    used: dict = field(default_factory=lambda: dict.fromkeys(NAMES, 0.0))
    loads: dict = field(default_factory=lambda: dict.fromkeys(NAMES, 0))
    running: dict = field(default_factory=dict)
    made: dict = field(default_factory=dict)
    orders: list = field(default_factory=list)
    asking: bool = False
    saving: bool = False
    cramped: set = field(default_factory=set)  # memory holds one floor of it and not two
    long: set = field(default_factory=set)  # have waited long since they rested

    def facts(self, name):
        files, identity = (new != old for new, old in zip(self.wanted[name], self.resident[name], strict=True))
        urgent = files and name in self.scarce
        version = f"it is version {self.wanted[name][1]}" if identity and not files else ""
        due = DueFloor("the log is long" if files else "", version, urgent=urgent)
        return CodexFacts(due, self.used[name], name not in self.cramped)

    def report(self, event):
        before = self.state
        self.state, effects = decide(before, event)
        for effect in effects:
            self.order(effect, event)
        self.long -= {one for one in NAMES if self.state.of(one).phase is SuccessorPhase.RESTING}

    def may_be_made(self, name):
        """Where nobody waits for it."""
        beside = name in self.long and name not in self.cramped
        return not self.saving and (not self.asking or beside)

    def order(self, effect, event):
        self.orders.append(effect)
        name = effect.name
        if isinstance(effect, CancelStep):
            assert name in self.running, "only what runs is cancelled, and once"
            del self.running[name]
            return
        assert name not in self.running, "one effect runs for a codex"
        assert not self.loads[name], "nothing is made while a load runs"
        urgent = self.state.of(name).facts.due.urgent
        if effect.phase is SuccessorPhase.PREPARING:
            assert effect.due, "nothing is made that is not due"
            assert urgent or self.may_be_made(name), "only an urgent one begins while it is not quiet"
        if effect.phase is SuccessorPhase.COMPUTING:
            assert self.may_be_made(name), "nothing is computed beside a question too soon, or while power is saved"
        if effect.phase is SuccessorPhase.COMMITTING:
            computed = self.made[name][1]
            assert computed or urgent, "the resident floor serves until the next one is computed"
        self.running[name] = effect

    def end(self, name, fault="", passing=False):
        """The effect that runs for this codex ends."""
        effect = self.running.pop(name, None)
        if effect is None:
            return
        if not fault and effect.phase is SuccessorPhase.PREPARING:
            self.made[name] = (self.wanted[name], False)
        if not fault and effect.phase is SuccessorPhase.COMPUTING:
            self.made[name] = (self.made[name][0], True)
        if not fault and effect.phase is SuccessorPhase.COMMITTING:
            self.resident[name] = self.made[name][0]
        self.report(StepEnded(name, effect.attempt, fault, passing, self.facts(name)))

    def now(self, event, name):
        """What a person, the disk or the machine does."""
        if event == "edit":
            self.wanted[name] = (self.wanted[name][0] + 1, self.wanted[name][1])
            self.report(DiskChanged({name: self.facts(name)}))
        elif event == "identity":
            self.wanted = {one: (files, identity + 1) for one, (files, identity) in self.wanted.items()}
            self.report(IdentityChanged({one: self.facts(one) for one in NAMES}))
        elif event == "taken back":
            self.wanted[name] = self.resident[name]
            self.report(IdentityChanged({name: self.facts(name)}))
        elif event == "scarce":
            self.scarce ^= {name}
            self.report(GrantChanged({name: self.facts(name)}))
        elif event == "ask":
            self.asking = True
            self.report(QuestionBegan())
        elif event == "answered":
            self.used[name] = max(self.used.values()) + 1
            self.report(QuestionEnded({name: self.facts(name)}))
        elif event == "quiet":
            self.asking = False
            self.report(QuietBegan())
        elif event == "power":
            self.saving = not self.saving
            self.report(PowerChanged(self.saving))
        elif event == "long":
            self.long |= {name} - {one for one in NAMES if self.state.of(one).phase is SuccessorPhase.RESTING}
            self.report(WaitedLong(name))
        elif event == "cramped":
            self.cramped ^= {name}
            self.report(GrantChanged({name: self.facts(name)}))
        elif event == "load":
            self.loads[name] += 1
            self.report(LoadBegan(name))
        elif event == "loaded" and self.loads[name]:
            self.loads[name] -= 1
            self.resident[name] = self.wanted[name]
            self.report(LoadEnded({name: self.facts(name)}))
        elif event == "drop" and not self.loads[name]:
            self.report(CodexForgotten(name))
            self.resident[name] = self.wanted[name]
        elif event == "ends":
            self.end(name)
        elif event == "breaks":
            self.end(name, "no room on disk")
        elif event == "engine ends":
            self.end(name, "the engine ended", passing=True)

    def settle(self, event="quiet"):
        """Loads end, nobody asks any more, every effect ends well; and each codex is heard of once more. Or, with "ask" and
        room for two floors, all ask without pause, and time passes."""
        for name in NAMES:
            while self.loads[name]:
                self.now("loaded", name)
        self.cramped = self.cramped if event == "quiet" else set()
        for name in NAMES:
            self.report(QuestionEnded({name: self.facts(name)}))
        self.now(event, NAMES[0])
        if self.saving:
            self.now("power", NAMES[0])
        for _ in range(100):
            if event == "ask":
                for name in NAMES:
                    self.now("long", name)
                    self.now("answered", name)
            if not self.running:
                return
            self.end(next(iter(self.running)))
        raise AssertionError("it never ends")


EVENTS = (
    *("edit", "identity", "taken back", "scarce", "ask", "answered", "quiet", "power", "load", "loaded", "drop"),
    *("long", "long", "cramped"),
    *("ends", "ends", "ends", "breaks", "engine ends"),
)
SEQUENCES = st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(NAMES)), max_size=60)


def lived(sequence):
    house = House()
    for event, name in sequence:
        house.now(event, name)
        at_work = [one for one, codex in house.state.codices.items() if codex.phase in AT_WORK]
        assert set(at_work) <= set(house.running)
        slow = [one for one in at_work if not house.state.of(one).facts.due.urgent and one not in house.scarce]
        computing = [one for one in slow if house.state.of(one).phase is SuccessorPhase.COMPUTING]
        assert len(computing) <= 1, "one floor is computed at a time"
    return house


@few(150)
@given(SEQUENCES)
def test_every_sequence_that_ends_quiet_ends_with_the_newest_resident(sequence):
    house = lived(sequence)
    house.settle()
    assert house.resident == house.wanted
    assert {codex.phase for codex in house.state.codices.values()} <= {SuccessorPhase.RESTING}


@few(150)
@given(SEQUENCES)
def test_where_memory_holds_two_floors_the_newest_becomes_resident_also_while_somebody_asks_without_pause(sequence):
    house = lived(sequence)
    house.settle("ask")
    assert house.asking
    assert house.resident == house.wanted


@few(150)
@given(SEQUENCES)
def test_no_effect_is_ordered_twice_but_by_another_attempt(sequence):
    ordered = [(one.name, one.attempt) for one in lived(sequence).orders if isinstance(one, BeginStep)]
    dropped = any(event == "drop" for event, _ in sequence)
    assert dropped or len(ordered) == len(set(ordered))


@few(80)
@given(SEQUENCES, st.sampled_from(NAMES))
def test_the_end_of_a_cancelled_step_changes_nothing(sequence, name):
    house = lived(sequence)
    stale = StepEnded(name, house.state.of(name).attempt - 1)
    assert decide(house.state, stale) == (house.state, ())


@few(80)
@given(SEQUENCES)
def test_a_change_that_is_taken_back_orders_nothing_more(sequence):
    house = lived(sequence)
    house.settle()
    house.now("ask", "a")
    orders = len(house.orders)
    house.now("identity", "a")
    house.wanted = dict(house.resident)
    house.report(IdentityChanged({one: house.facts(one) for one in NAMES}))
    house.now("quiet", "a")
    assert len(house.orders) == orders


def test_the_state_is_a_value():
    state = TableState()
    decide(state, QuestionBegan())
    assert state == TableState()
    assert replace(state) == state


def test_of_floors_that_must_become_smaller_the_one_asked_about_longest_ago_begins_first():
    due = DueFloor(coverage="map instead of full", urgent=True)
    facts = {"a": CodexFacts(due, used=9.0), "b": CodexFacts(due, used=3.0), "c": CodexFacts(due, used=6.0)}
    _, effects = decide(TableState(), GrantChanged(facts))
    assert [effect.name for effect in effects] == ["b", "c", "a"]
