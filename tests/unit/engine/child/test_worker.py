"""The child's threads: the frontend answers what can be read beside a step and hands everything else to the loop; JSON
schemas are compiled beside both; the watchdog reports what takes ten times its prediction, in each thread by itself; the
loop has it watch each step."""

import math
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from statistics import median

import pytest
from support.call_forms import HERMES
from support.fake_engine import FakeBackend, FakeMemory, FakeSampler
from support.waiting import SOON

from orchestrator.engine.backend import Run, SchemaRefused
from orchestrator.engine.calling import OfferedTool, ToolRules
from orchestrator.engine.child import samplers as samplers_module
from orchestrator.engine.child.samplers import SchemaSamplers
from orchestrator.engine.child.thread_count import core_times
from orchestrator.engine.child.worker import Frontend, Watchdog, Worker, overrun
from orchestrator.engine.messages import (
    OVERRUN_FACTOR,
    OVERRUN_LEAST_SECONDS,
    Cancel,
    Completion,
    Decode,
    DecodedText,
    Encode,
    Encoded,
    Grant,
    InferenceJob,
    Outcome,
    PrefixMatch,
    Prepare,
    PutFloor,
    Reason,
    Sampling,
    Shutdown,
    ids_to_bytes,
)
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.scheduler.loop import Loop
from orchestrator.engine.scheduler.planner import Limits
from orchestrator.engine.snapshot import EngineSnapshot
from orchestrator.engine.transport import Wire, pack

FLOOR = array("I", range(10))
CALLS = ToolRules(HERMES, (OfferedTool("now", '{"properties": {}}'),))


# -- the frontend


def answered(*messages: object) -> tuple[list[object], list[object]]:
    """What the frontend sent, and what it handed on."""
    daemon, child = socket.socketpair()
    with daemon, child:
        forwarded = list[object]()
        backend = FakeBackend()
        samplers = SchemaSamplers(backend, forwarded.append, nullcontext)
        frontend = Frontend(backend, Wire(child), forwarded.append, samplers)
        daemon.sendall(pack(messages))
        daemon.shutdown(socket.SHUT_WR)
        frontend.serve()
        child.shutdown(socket.SHUT_WR)
        return list(Wire(daemon).receive()), forwarded


def test_it_encodes_and_decodes() -> None:
    sent, forwarded = answered(Encode(1, ("ab", "")), Decode(2, ids_to_bytes([104, 105])))
    assert sent == [Encoded(1, (ids_to_bytes([97, 98]), b"")), DecodedText(2, "hi")]
    assert forwarded == []


def test_what_it_does_not_know_goes_to_the_loop_in_order() -> None:
    floor = PutFloor("f", FLOOR.tobytes())
    match = PrefixMatch(5, "f", b"", 1)
    assert answered(floor, match, Cancel(2)) == ([], [floor, match, Cancel(2)])


class Reading(FakeBackend):
    """Tokenises a long text once it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = threading.Semaphore(0)

    def encode(self, texts: Sequence[str], *, control: bool) -> list[list[int]]:
        if len(texts[0]) > 100:
            assert self.allowed.acquire(timeout=SOON)
        return super().encode(texts, control=control)


def test_nobody_waits_while_megabytes_of_another_are_tokenised() -> None:
    backend = Reading()
    with child(backend) as (wire, heard):
        wire.send([Encode(1, ("x" * 2_000_000,)), Encode(2, ("ab",))])
        answers = (one.call for one in heard if isinstance(one, Encoded))
        assert next(answers) == 2
        backend.allowed.release()
        assert next(answers) == 1


# -- JSON schemas


def job(ticket: int, schema: str = "", tokens: int = 3) -> InferenceJob:
    return InferenceJob(ticket, "code", ids_to_bytes([1, 2]), 1, tokens, Sampling(schema=schema))


class Compiling(FakeBackend):
    """Compiles a schema once it is allowed to, and refuses one of a single letter."""

    def __init__(self) -> None:
        super().__init__(end_every=1 << 30)
        self.allowed = threading.Semaphore(0)
        self.begun: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.known = set[str]()

    def sampler(self, sampling: Sampling) -> FakeSampler:
        if sampling.constrained and not self.compiled(sampling):
            self.begun.put(sampling.schema or "calls")
            assert self.allowed.acquire(timeout=SOON)
        if len(sampling.schema) == 1:
            raise SchemaRefused("a letter")
        return super().sampler(sampling)

    def compiled(self, sampling: Sampling) -> bool:
        return sampling.schema in self.known


@contextmanager
def child(backend: FakeBackend) -> Iterator[tuple[Wire, Iterator[object]]]:
    """The child's threads in this process, and the daemon's end of its wire with all that it hears."""
    ours, theirs = socket.socketpair()
    ours.settimeout(SOON)
    worker = Worker(
        backend, EngineSpec("fake", threads=1), Wire(theirs), Watchdog(time.monotonic, overrun), core_times()
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    wire = Wire(ours)
    wire.send([Grant(1, 4096, 2048), PutFloor("code", ids_to_bytes(FLOOR))])
    try:
        yield wire, wire.receive()
    finally:
        wire.send([Shutdown()])
        thread.join(SOON)
        ours.close()


def ended(heard: Iterator[object]) -> Completion:
    return next(message for message in heard if isinstance(message, Completion))


def test_an_end_is_heard_behind_the_picture_that_has_it() -> None:
    with child(FakeBackend(end_every=1 << 30)) as (wire, heard):
        wire.send([job(1)])
        pictures = list[EngineSnapshot]()
        for message in heard:
            if isinstance(message, EngineSnapshot):
                pictures.append(message)
            if isinstance(message, Completion):
                break
        assert (pictures[-1].running, pictures[-1].counters["generated_tokens"]) == (0, 3)


def test_while_a_schema_is_compiled_texts_are_read_and_questions_that_came_later_are_answered() -> None:
    backend = Compiling()
    with child(backend) as (wire, heard):
        wire.send([job(1, "{}"), Encode(1, ("ab",)), job(2)])
        assert backend.begun.get(timeout=SOON) == "{}"
        assert next(message for message in heard if isinstance(message, Encoded)).call == 1
        assert (end := ended(heard)).ticket == 2 and end.outcome is Outcome.DONE
        backend.allowed.release()
        assert (end := ended(heard)).ticket == 1 and end.outcome is Outcome.DONE


def test_while_a_schema_is_compiled_the_steps_leave_it_a_core() -> None:
    backend, cores = Compiling(), len(os.sched_getaffinity(0))
    backend.threads = cores
    with child(backend) as (wire, heard):
        wire.send([job(1, "{}")])
        backend.begun.get(timeout=SOON)
        assert backend.threads == max(1, cores - 1)
        backend.allowed.release()
        assert ended(heard).outcome is Outcome.DONE
        assert backend.threads == cores


def test_what_is_prepared_is_compiled_when_nobody_asks_and_a_refusal_of_it_ends_nothing() -> None:
    backend = Compiling()
    with child(backend) as (wire, heard):
        wire.send([Prepare(Sampling(schema="x"))])
        assert backend.begun.get(timeout=SOON) == "x"
        wire.send([job(1)])
        assert (end := ended(heard)).ticket == 1 and end.outcome is Outcome.DONE
        backend.allowed.release(2)
        wire.send([job(2, "[]")])
        assert (end := ended(heard)).ticket == 2 and end.outcome is Outcome.DONE


def test_what_is_prepared_is_not_compiled_while_answers_are_computed() -> None:
    made, backend = list[object](), Compiling()
    samplers = SchemaSamplers(backend, made.append, nullcontext)
    samplers.prepare(Sampling(calls=CALLS))
    samplers.take(replace(job(1), sampling=Sampling(calls=CALLS)))
    assert (len(made), backend.begun.empty()) == (1, True)
    samplers.begin_in_advance()
    assert backend.begun.get(timeout=SOON) == "calls"
    backend.allowed.release()


def test_a_schema_and_what_is_prepared_may_come_at_once_from_two_threads() -> None:
    for _ in range(50):
        backend = Compiling()
        backend.allowed.release(2)
        samplers = SchemaSamplers(backend, lambda made: None, nullcontext)
        samplers.prepare(Sampling(calls=CALLS))
        together, faults = threading.Barrier(2), list[BaseException]()

        def run(work: Callable[[], object], together: threading.Barrier = together) -> None:
            together.wait()
            try:
                work()
            except RuntimeError as fault:
                faults.append(fault)  # noqa: B023 - of this round, which is joined below

        threads = [
            threading.Thread(target=run, args=(work,))
            for work in (samplers.begin_in_advance, partial(samplers.take, job(1, "{}")))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []


def test_what_is_prepared_is_compiled_beside_answers_where_they_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers_module, "BUSY_SECONDS", 0.0)
    backend = Compiling()
    samplers = SchemaSamplers(backend, lambda made: None, nullcontext)
    samplers.prepare(Sampling(calls=CALLS))
    samplers.take(replace(job(1), sampling=Sampling(calls=CALLS)))
    assert backend.begun.get(timeout=SOON) == "calls"
    backend.allowed.release()


def test_while_the_prepared_calls_are_compiled_answers_with_them_are_not_bound_and_others_wait() -> None:
    backend, prepared = Compiling(), Sampling(calls=CALLS)
    with child(backend) as (wire, heard):
        wire.send([Prepare(prepared)])
        assert backend.begun.get(timeout=SOON) == "calls"
        wire.send(
            [
                replace(job(1), sampling=Sampling(calls=replace(CALLS, required=True))),
                replace(job(2), sampling=prepared),
            ]
        )
        assert (end := ended(heard)).ticket == 2 and end.outcome is Outcome.DONE
        backend.allowed.release(2)
        assert (end := ended(heard)).ticket == 1 and end.outcome is Outcome.DONE
        wire.send([replace(job(3), sampling=prepared)])
        assert backend.begun.get(timeout=SOON) == backend.begun.get(timeout=SOON) == "calls"
        backend.allowed.release()
        assert (end := ended(heard)).ticket == 3 and end.outcome is Outcome.DONE


def test_a_small_schema_is_compiled_before_larger_ones_that_wait_and_one_called_off_is_not_compiled() -> None:
    backend = Compiling()
    with child(backend) as (wire, heard):
        wire.send([job(1, "first")])
        assert backend.begun.get(timeout=SOON) == "first"
        wire.send([job(2, "a larger one"), job(3, "one that is called off"), job(4, "a small"), Cancel(3)])
        assert (end := ended(heard)).ticket == 3 and end.outcome is Outcome.CANCELLED
        backend.allowed.release(3)
        assert {ended(heard).ticket for _ in range(3)} == {1, 2, 4}
        assert [backend.begun.get(timeout=SOON) for _ in range(2)] == ["a small", "a larger one"]
        assert backend.begun.empty()


def test_a_large_schema_is_compiled_though_small_ones_come_all_the_time() -> None:
    backend = Compiling()
    with child(backend) as (wire, heard):
        wire.send([job(1, "first")])
        assert backend.begun.get(timeout=SOON) == "first"
        wire.send([job(2, "a larger one"), *(job(ticket, "small") for ticket in range(3, 9)), Cancel(8)])
        assert ended(heard).ticket == 8
        backend.allowed.release(7)
        assert {ended(heard).ticket for _ in range(7)} == {1, 2, 3, 4, 5, 6, 7}
        begun = [backend.begun.get(timeout=SOON) for _ in range(6)]
        assert begun == ["small", "small", "a larger one", "small", "small", "small"]


def test_a_question_whose_schema_is_compiled_already_waits_for_no_other_schema() -> None:
    backend = Compiling()
    with child(backend) as (wire, heard):
        wire.send([job(1, "a larger one")])
        assert backend.begun.get(timeout=SOON) == "a larger one"
        backend.known = {"{}", "x"}
        wire.send([job(2, "{}"), job(3, "x")])
        outcomes = {end.ticket: end.outcome for end in (ended(heard), ended(heard))}
        assert outcomes == {2: Outcome.DONE, 3: Outcome.REFUSED}
        backend.allowed.release()
        assert (end := ended(heard)).ticket == 1 and end.outcome is Outcome.DONE


def test_a_schema_that_is_refused_ends_its_question_with_the_reason_whatever_waits_before_it() -> None:
    backend = Compiling()
    with child(backend) as (wire, heard):
        wire.send([job(1, "x")])
        backend.allowed.release()
        end = ended(heard)
        assert (end.outcome, end.reason, end.detail) == (Outcome.REFUSED, Reason.SCHEMA, "a letter")


# -- the watchdog


class Hands:
    """A clock that the test sets, and what was told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[float] = []
        self.names: list[str] = []
        self.waits: dict[int, float] = {}  # for a core, by thread
        self.watchdog = Watchdog(lambda: self.now, self.tell, lambda: dict(self.waits))

    def tell(self, what: str, seconds: float) -> None:
        self.names.append(what)
        self.told.append(seconds)

    def spend(self, seconds: float) -> None:
        self.now += seconds
        self.watchdog.look()

    def do(self, predicted: float, seconds: float) -> None:
        with self.watchdog.watch("work", predicted):
            self.spend(seconds)


def test_what_nobody_can_predict_may_take_any_time() -> None:
    hands = Hands()
    hands.do(math.inf, 100_000)
    assert hands.told == []


@pytest.mark.parametrize(("predicted", "limit"), [(0.1, OVERRUN_LEAST_SECONDS), (20.0, OVERRUN_FACTOR * 20.0)])
def test_it_is_told_beyond_ten_times_the_prediction_and_at_least_thirty_seconds(predicted: float, limit: float) -> None:
    hands = Hands()
    hands.do(predicted, limit)
    assert hands.told == []
    hands.do(predicted, limit + 1)
    assert hands.told == [limit + 1]


def test_seconds_in_which_a_thread_waited_for_a_core_do_not_count_and_those_of_another_time_neither() -> None:
    hands = Hands()
    hands.waits = {1: 500.0, 2: 0.0}  # 1 waited before it was looked at first
    with hands.watchdog.watch("work", 0.1):
        hands.spend(10)
        hands.waits = {1: 509.0, 2: 7.0}
        hands.spend(OVERRUN_LEAST_SECONDS - 1)
        assert hands.told == []
        hands.spend(1)
    assert hands.told == [OVERRUN_LEAST_SECONDS + 1]
    hands.waits = {1: 900.0}
    hands.do(0.1, OVERRUN_LEAST_SECONDS)
    hands.do(0.1, OVERRUN_LEAST_SECONDS + 1)
    assert hands.told == [OVERRUN_LEAST_SECONDS + 1, OVERRUN_LEAST_SECONDS + 1]


def test_while_nothing_is_watched_there_is_nothing_to_tell() -> None:
    hands = Hands()
    hands.do(0.1, 1)
    hands.spend(10_000)
    assert hands.told == []


def test_what_fails_has_ended_too() -> None:
    hands = Hands()
    with pytest.raises(RuntimeError), hands.watchdog.watch("work", 0.1):
        raise RuntimeError
    hands.spend(10_000)
    assert hands.told == []


def test_what_stands_inside_is_judged_by_its_own_prediction_and_its_end_is_a_sign_of_life() -> None:
    hands = Hands()
    with hands.watchdog.watch("what stands around", 0.1):
        hands.spend(OVERRUN_LEAST_SECONDS)
        hands.do(1000, 9000)
        hands.spend(OVERRUN_LEAST_SECONDS)
        assert hands.told == []
        hands.spend(1)
    assert hands.told == [OVERRUN_LEAST_SECONDS + 1]
    assert hands.names == ["what stands around"]


def test_each_thread_is_watched_by_what_it_does_itself() -> None:
    hands = Hands()
    entered, leave = threading.Event(), threading.Event()

    def hang() -> None:
        with hands.watchdog.watch("the lane's", 1.0):
            entered.set()
            leave.wait(SOON)

    lane = threading.Thread(target=hang)
    with hands.watchdog.watch("the loop's", 1000.0):
        lane.start()
        assert entered.wait(SOON)
        hands.do(0.1, 1)
        hands.spend(OVERRUN_LEAST_SECONDS)
    leave.set()
    lane.join()
    hands.spend(10_000)
    assert (hands.names, hands.told) == (["the lane's"], [OVERRUN_LEAST_SECONDS + 1])


def test_whoever_shows_signs_of_life_may_take_any_time_and_is_told_of_when_they_end() -> None:
    hands = Hands()
    done = 0
    with hands.watchdog.watch("a load", 60.0, lambda: done):
        for _ in range(100):
            done += 1
            hands.spend(OVERRUN_FACTOR * 60.0)
        assert hands.told == []
        hands.spend(OVERRUN_FACTOR * 60.0)
        assert hands.told == []
        hands.spend(1)
    assert (hands.names, hands.told) == (["a load"], [OVERRUN_FACTOR * 60.0 + 1])


class SlowMemory(FakeMemory):
    owner: "SlowBackend"

    def decode(self, runs: Sequence[Run]) -> None:
        self.owner.spend(self.owner.seconds)
        super().decode(runs)


class SlowBackend(FakeBackend):
    """Its steps take so many `seconds`."""

    def __init__(self, spend: Callable[[float], None]) -> None:
        super().__init__(end_every=1 << 30)
        self.spend = spend
        self.seconds = 0.0

    def open(self, cells: int, sequences: int) -> SlowMemory:
        memory = SlowMemory(cells, sequences, self.end_every, footprint=cells * 8)
        memory.owner = self
        return memory


class Watched(Hands):
    """A loop that is asked something long, after a round without anything to do."""

    def __init__(self) -> None:
        super().__init__()
        self.backend = SlowBackend(self.spend)
        self.loop = Loop(
            self.backend, 4, Limits(64), lambda _: None, lambda: self.now, watch=partial(self.watchdog.watch, "a step")
        )
        self.loop.handle(Grant(1, 4096, 2048))
        self.round(0)
        self.loop.handle(PutFloor("code", ids_to_bytes(range(300))))
        self.loop.handle(InferenceJob(1, "code", ids_to_bytes([7]), 1, 100))

    def round(self, seconds: float) -> None:
        self.backend.seconds = seconds
        self.loop.round()


def test_the_first_step_of_a_loop_may_take_any_time_although_rounds_went_before_it() -> None:
    watched = Watched()
    watched.round(10_000)
    assert (watched.loop.counters.steps, watched.told) == (1, [])


def test_a_later_step_of_a_loop_may_take_ten_times_its_prediction() -> None:
    watched = Watched()
    watched.round(0)
    watched.round(OVERRUN_LEAST_SECONDS + 1)
    assert (watched.loop.counters.steps, watched.told) == (2, [OVERRUN_LEAST_SECONDS + 1])


def test_carrying_may_take_longer_the_more_is_granted_or_held() -> None:
    watched = Watched()
    empty = watched.loop.pools.carrying_s()
    watched.round(0)
    assert watched.loop.pools.carrying_s() > empty > 0
    watched.loop.handle(Grant(2, 0, 2048))
    assert watched.loop.pools.carrying_s() > 0, "what stands may have to be carried away"


CHILD = "import sys; from orchestrator.engine.child.worker import main; main(); print(sys.getswitchinterval())"


def test_a_step_gets_the_interpreter_back_soon_from_a_thread_that_reads_a_schema() -> None:
    """A large one is read for a tenth of a second. A step frees the interpreter at each of its calls into llama.cpp."""
    here, there = socket.socketpair()
    here.close()  # a child without a daemon ends
    with there:
        command = [sys.executable, "-P", "-c", CHILD, str(there.fileno())]
        done = subprocess.run(command, pass_fds=[there.fileno()], capture_output=True, text=True, check=True)
    childs, pythons = float(done.stdout), sys.getswitchinterval()
    try:
        assert any(2 * step_s(childs) < step_s(pythons) for _ in range(3))
    finally:
        sys.setswitchinterval(pythons)


def step_s(interval: float) -> float:
    """Seconds of five calls beside a thread of Python; the median."""
    ended, taken = threading.Event(), list[float]()
    sys.setswitchinterval(interval)
    beside = threading.Thread(target=lambda: [sum(range(100)) for _ in iter(ended.is_set, True)])
    beside.start()
    for _ in range(20):
        began = time.monotonic()
        for _ in range(5):
            time.sleep(0.0001)
        taken.append(time.monotonic() - began)
    ended.set()
    beside.join()
    return median(taken)
