"""The child's threads: the frontend answers what can be read beside a step and hands everything else to the loop; the
watchdog reports what takes ten times its prediction, in each thread by itself; the loop has it watch each step."""

import math
import socket
import threading
from array import array
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from support.waiting import SOON

from orchestrator.engine.backend import Run
from orchestrator.engine.child.worker import Frontend, Watchdog
from orchestrator.engine.fake import FakeBackend, FakeMemory
from orchestrator.engine.messages import (
    OVERRUN_FACTOR,
    OVERRUN_LEAST_SECONDS,
    Cancel,
    Decode,
    DecodedText,
    Encode,
    Encoded,
    Grant,
    InferenceJob,
    PrefixMatch,
    PutFloor,
    Sampling,
    Wire,
    ids_to_bytes,
    pack,
)
from orchestrator.engine.scheduler.loop import Loop
from orchestrator.engine.scheduler.planner import Limits

FLOOR = array("I", range(10))


# -- the frontend


def answered(*messages: object) -> tuple[list[object], list[object]]:
    """What the frontend sent, and what it handed on."""
    daemon, child = socket.socketpair()
    with daemon, child:
        forwarded = list[object]()
        frontend = Frontend(FakeBackend(), Wire(child), forwarded.append)
        daemon.sendall(pack(messages))
        daemon.shutdown(socket.SHUT_WR)
        frontend.serve()
        child.shutdown(socket.SHUT_WR)
        return list(Wire(daemon).receive()), forwarded


def test_it_encodes_and_decodes() -> None:
    sent, forwarded = answered(Encode(1, ("ab", "")), Decode(2, ids_to_bytes([104, 105])))
    assert sent == [Encoded(1, (ids_to_bytes([97, 98]), b"")), DecodedText(2, "hi")]
    assert forwarded == []


def test_a_job_is_studied_before_the_loop_has_it() -> None:
    done = list[object]()

    class Studying(FakeBackend):
        def study(self, sampling: Sampling) -> None:
            done.append(sampling.schema)

    job = InferenceJob(1, "f", b"", owner=0, max_tokens=1, sampling=Sampling(schema="{}"))
    daemon, child = socket.socketpair()
    with daemon, child:
        daemon.sendall(pack([job]))
        daemon.shutdown(socket.SHUT_WR)
        Frontend(Studying(), Wire(child), done.append).serve()
    assert done == ["{}", job]


def test_what_it_does_not_know_goes_to_the_loop_in_order() -> None:
    floor = PutFloor("f", FLOOR.tobytes())
    match = PrefixMatch(5, "f", b"", 1)
    assert answered(floor, match, Cancel(2)) == ([], [floor, match, Cancel(2)])


# -- the watchdog


class Hands:
    """A clock that the test sets, and what was told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[float] = []
        self.names: list[str] = []
        self.watchdog = Watchdog(lambda: self.now, self.tell)

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
