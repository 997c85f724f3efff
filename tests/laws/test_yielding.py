"""Laws of the table that gives the memory away, over random sequences of events."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from governor.settings import YieldSettings
from orchestrator.machine.yielding import (
    QUIET_S,
    RETURN_S,
    Away,
    Cause,
    Looked,
    MemoryRead,
    NeedChanged,
    Pause,
    PauseBegan,
    PauseEnded,
    Worked,
    YieldState,
    away_of,
    decide,
    next_look,
    read_pauses,
    write_pauses,
)

IDLE = 100.0
SETTINGS = YieldSettings(polite=True, idle_s=IDLE)
steps = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 20.0, 61.0, 101.0]),
        st.one_of(
            st.tuples(st.just("pause"), st.sampled_from("abc"), st.sampled_from([None, 10.0, 90.0])),
            st.tuples(st.just("end"), st.sampled_from("abc")),
            st.tuples(st.sampled_from(["resume", "ask", "answer", "work", "look", "scarce", "less", "calm"])),
        ),
    ),
    max_size=30,
)


@dataclass
class Life:
    """A life of events under the table, and beside it what was asked for: pauses with their ends, and who asks."""

    settings: YieldSettings = SETTINGS
    now: float = 1000.0
    state: YieldState = field(default_factory=lambda: YieldState(worked=1000.0))
    pauses: dict = field(default_factory=dict)
    asking: int = 0

    def report(self, event):
        self.state = decide(self.state, event, self.settings)

    def pass_(self, seconds):
        """Time passes, with a look whenever the table wants one."""
        end = self.now + seconds
        while (at := next_look(self.state, self.settings)) is not None and at <= end:
            self.now = max(self.now, at)
            before = self.state
            self.report(Looked(self.now))
            assert self.state != before, "a look that was wanted changes something"
        self.now = end
        before = self.state
        self.report(Looked(self.now))
        assert self.state == before, "nothing was due that was not foreseen"
        self.pauses = {name: until for name, until in self.pauses.items() if until is None or until > self.now}

    def do(self, what, *more):
        match what:
            case "pause":
                name, seconds = more
                until = None if seconds is None else self.now + seconds
                self.report(PauseBegan(self.now, Pause(name, self.now, name, until)))
                self.pauses[name] = until
            case "end":
                self.report(PauseEnded(self.now, more[0]))
                self.pauses.pop(more[0], None)
            case "resume":
                self.report(PauseEnded(self.now))
                self.pauses.clear()
            case "ask":
                self.report(NeedChanged(self.now))
                self.asking += 1
            case "answer" if self.asking:
                self.report(NeedChanged(self.now, -1))
                self.asking -= 1
            case "work":
                self.report(Worked(self.now))
            case "scarce" | "less" | "calm":
                self.report(MemoryRead(self.now, "others grew" if what == "scarce" else "", what == "calm"))
            case "look":
                self.report(Looked(self.now))

    @property
    def away(self):
        return away_of(self.state)


@given(steps)
def test_a_pause_holds_until_its_own_end_whatever_else_happens_and_nothing_else_keeps_a_question_waiting(steps):
    life = Life()
    for seconds, step in steps:
        life.pass_(seconds)
        life.do(*step)
        assert {pause.name for pause in life.state.pauses} == set(life.pauses)
        assert life.state.asking == life.asking
        if life.pauses:
            assert life.away is not None
            assert life.away.cause is Cause.PAUSE
            ends = life.pauses.values()
            assert life.away.until == (None if None in ends else max(ends))
        elif life.asking:
            assert life.away is None


@given(steps)
def test_after_a_resume_the_engine_is_there_and_after_a_question_too_unless_it_is_paused(steps):
    life = Life()
    for seconds, step in steps:
        life.pass_(seconds)
        life.do(*step)
    life.do("ask")
    assert life.away is None or life.away.cause is Cause.PAUSE
    life.do("resume")
    assert life.away is None


@given(steps)
def test_a_daemon_that_is_never_polite_and_never_idle_leaves_for_pauses_alone(steps):
    life = Life(YieldSettings(polite=False, idle_s=0.0))
    for seconds, step in steps:
        life.pass_(seconds)
        life.do(*step)
        assert (life.away is not None) == bool(life.pauses)


@given(steps=steps)
def test_a_daemon_that_is_killed_at_any_moment_has_the_same_pauses_again(steps, tmp_path_factory):
    life, file = Life(), tmp_path_factory.mktemp("state") / "paused.json"
    for seconds, step in steps:
        life.pass_(seconds)
        life.do(*step)
        write_pauses(file, life.state.pauses)
        assert read_pauses(file, life.now) == life.state.pauses


def after(*steps, settings=SETTINGS):
    life = Life(settings)
    for step in steps:
        life.pass_(step) if isinstance(step, float) else life.do(*step.split())
    return life.away


def test_who_is_idle_leaves_after_the_time_that_is_set_and_not_while_it_works():
    assert after(IDLE - 1) is None
    assert after(IDLE) == Away(Cause.IDLE, 1000.0 + IDLE, "nobody asked for 2 minutes")
    assert after("ask", 2 * IDLE) is None
    assert after("ask", 2 * IDLE, "answer", IDLE - 1) is None
    assert after("ask", 2 * IDLE, "answer", IDLE) is not None
    assert after(50.0, "work", IDLE - 1) is None


def test_a_pause_that_ends_is_no_idle_time():
    life = Life()
    life.do("pause", "a", None)
    life.pass_(3 * IDLE)
    life.do("end", "a")
    assert life.away is None
    life.pass_(IDLE - 1)
    assert life.away is None


def test_others_growth_ends_the_engine_when_nobody_asks_and_a_calm_level_brings_it_back():
    assert after("scarce").cause is Cause.PRESSURE
    assert after("ask", "scarce") is None
    assert after("ask", "scarce", "answer").cause is Cause.PRESSURE
    assert after("scarce", "less").cause is Cause.PRESSURE
    assert after("scarce", "less", "calm") is None


def test_between_two_questions_the_same_growth_does_not_end_it_again_until_nobody_has_asked_for_a_minute():
    assert after("scarce", "ask") is None
    assert after("scarce", "ask", "answer", "scarce", QUIET_S - 1) is None
    assert after("scarce", "ask", "answer", QUIET_S).cause is Cause.PRESSURE
    assert after("scarce", "ask", "answer", "calm", "scarce").cause is Cause.PRESSURE


def test_a_pause_of_a_client_outlasts_the_daemon_only_as_long_as_that_may_take_to_come_back(tmp_path):
    file = tmp_path / "paused.json"
    write_pauses(file, (Pause("a", 1.0, "lore pause"), Pause("b", 2.0, "lore pause -- make", held=True)))
    plain, held = read_pauses(file, 10.0)
    assert (plain.until, held.until) == (None, 10.0 + RETURN_S)


def test_a_damaged_file_of_pauses_keeps_nobody_away(tmp_path):
    file = tmp_path / "paused.json"
    for text in ("", "{", '{"pauses": [{"name": 1}]}', '{"pauses": 3}', "[]", "\x00"):
        file.write_text(text)
        assert read_pauses(file, 0.0) == ()


def test_pauses_are_named_with_their_reasons_and_the_latest_end():
    pauses = (Pause("a", 5.0, "lore pause", 90.0), Pause("b", 7.0, "lore pause -- make", 60.0))
    assert away_of(YieldState(pauses)) == Away(Cause.PAUSE, 5.0, "lore pause, lore pause -- make", 90.0)
