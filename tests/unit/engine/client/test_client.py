"""The client with a real child process around the fake backend: what survives a child, and which tickets fail."""

import asyncio
import os
import signal
from contextlib import aclosing, asynccontextmanager, suppress

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_engine import FAKE

from orchestrator.answering.inference import fault_of
from orchestrator.engine.client.client import EngineClient, Running
from orchestrator.engine.client.replay import AfterEnd, Suspects, after_end, suspects_of
from orchestrator.engine.client.supervisor import EngineUnavailable
from orchestrator.engine.costs import Costs
from orchestrator.engine.messages import (
    Admitted,
    AnswerDelta,
    Completion,
    DropFloor,
    Grant,
    InferenceJob,
    Outcome,
    Reason,
    Sampling,
    Urgency,
    ids_to_bytes,
)
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.prefill_cost import prompt_s

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_engines")]
FLOOR = ids_to_bytes([n % 50 for n in range(600)])


@asynccontextmanager
async def engine(model=FAKE, cells=8192):
    client = EngineClient(EngineSpec(model=model))
    client.start()
    client.grant(Grant(1, cells, 4096))
    try:
        yield client
    finally:
        await client.stop()


def job(tail=(1, 2, 3), max_tokens=8, floor="f", seed=None):
    sampling = Sampling() if seed is None else Sampling(temperature=1.0, seed=seed)
    return InferenceJob(0, floor, ids_to_bytes(tail), owner=1, max_tokens=max_tokens, sampling=sampling)


async def collect(client, asked):
    return [message async for message in client.run(asked)]


@pytest.fixture(scope="module")
async def unharmed():
    """A client whose child no test ends, with the floor `f`."""
    async with engine() as client:
        client.put_floor("f", FLOOR)
        yield client


async def test_an_answer_is_admitted_told_and_completed(unharmed):
    messages = await collect(unharmed, job())
    assert isinstance(messages[0], Admitted)
    assert isinstance(messages[-1], Completion)
    assert messages[-1].outcome is Outcome.DONE
    assert "".join(m.text for m in messages if isinstance(m, AnswerDelta)).isalpha()


async def test_the_second_question_computes_only_its_own_tokens(unharmed):
    await collect(unharmed, job((1, 2, 3)))
    assert (await collect(unharmed, job((9, 9, 9))))[-1].computed == 3


async def test_a_job_whose_floor_was_dropped_before_it_arrives_is_told_that_its_codex_was_dropped(unharmed):
    unharmed.put_floor("gone", FLOOR)
    unharmed.drop_floor("gone")
    (ended,) = await collect(unharmed, job(floor="gone"))
    assert (ended.outcome, ended.reason) == (Outcome.CANCELLED, Reason.DROPPED)
    assert fault_of(ended).code == "codex_dropped"


async def test_a_floor_that_the_child_should_know_and_does_not_is_a_fault_of_the_engine(unharmed):
    unharmed.put_floor("lost", FLOOR)
    unharmed._supervisor.send([DropFloor("lost")])
    (ended,) = await collect(unharmed, job(floor="lost"))
    unharmed.drop_floor("lost")
    assert (ended.outcome, ended.reason) == (Outcome.REFUSED, Reason.UNKNOWN_FLOOR)


async def test_calls_are_answered_while_the_loop_is_idle_or_busy():
    async with engine() as client:
        client.put_floor("f", FLOOR)
        assert [ids.tolist() for ids in await client.encode(["ab", "c"])] == [[97, 98], [99]]
        assert await client.decode(ids_to_bytes([104, 105])) == "hi"
        assert (await client.match("f", ids_to_bytes([1]), 1)).length == 0
        await collect(client, job((1, 2, 3)))
        assert (await client.match("f", ids_to_bytes([1, 2, 7]), 1)).length == 602


async def test_a_killed_child_is_replaced_and_a_ticket_that_had_sent_nothing_is_answered():
    async with engine() as client:
        client.put_floor("f", FLOOR)
        await client.ensure_ready()
        first_child = client.pid
        os.kill(first_child, signal.SIGSTOP)  # it can send nothing more
        async with aclosing(client.run(job())) as stream:
            waiting = stream.__anext__()
            os.kill(first_child, signal.SIGKILL)
            messages = [await waiting] + [message async for message in stream]
        assert messages[-1].outcome is Outcome.DONE
        assert client.restarts == 1
        assert client.pid != first_child


async def test_questions_wait_for_no_suspect_that_nobody_wants_answered_any_more():
    async with engine() as client:
        client.put_floor("f", FLOOR)
        await client.ensure_ready()
        first_child = client.pid
        os.kill(first_child, signal.SIGSTOP)
        with anyio.fail_after(30):
            async with aclosing(client.run(job(max_tokens=3000))) as first, aclosing(client.run(job((4,)))) as second:
                told = asyncio.ensure_future(anext(first))
                waits = asyncio.ensure_future(anext(second))
                third = asyncio.ensure_future(collect(client, job((5,))))
                await asyncio.sleep(0)
                os.kill(first_child, signal.SIGKILL)
                assert isinstance(await told, Admitted)  # by the next child, alone
                waits.cancel()
                await asyncio.wait([waits])
            assert (await third)[-1].outcome is Outcome.DONE
            assert (await collect(client, job((6,))))[-1].outcome is Outcome.DONE
        assert client.restarts == 1


async def test_a_ticket_that_had_begun_to_answer_fails_with_a_retryable_error():
    async with engine() as client:
        client.put_floor("f", FLOOR)
        seen = []
        for seed in range(50):  # some seeds end with their first token; the stop must come in the middle
            async for message in client.run(job(max_tokens=3000, seed=seed)):
                seen.append(message)
                if isinstance(message, AnswerDelta):
                    with suppress(ProcessLookupError):  # of two that had come already, the first has ended it
                        os.kill(client.pid, signal.SIGKILL)
            if seen[-1].outcome is Outcome.FAILED:
                break
        assert seen[-1].reason is Reason.ENGINE
        assert seen[-1].detail.startswith("the engine ended (killed by signal 9, ")
        assert fault_of(seen[-1]).hint == "ask again"


async def test_after_a_pause_the_floor_that_was_asked_on_last_is_there_before_anybody_asks():
    async with engine() as client:
        client.put_floor("f", FLOOR)
        client.put_floor("other", ids_to_bytes([7] * 300))
        await collect(client, job())
        await client.pause("a test", 1.0)
        client.resume()
        await client.ensure_ready()
        while (await client.match("f", b"", 1)).length < 600:
            await client.next_snapshot()
        assert (await client.match("other", b"", 1)).length < 300


async def test_a_model_that_cannot_be_loaded_is_broken_at_once_and_says_why(tmp_path):
    path = tmp_path / "nothing.gguf"
    path.write_bytes(b"GGUF" + b"\0" * 64)
    async with engine(str(path)) as client:
        with pytest.raises(EngineUnavailable, match=r"nothing\.gguf"):
            await client.ensure_ready()


async def test_closing_the_stream_early_gives_its_cells_back(unharmed):
    async with aclosing(unharmed.run(job(max_tokens=3000))) as stream:
        await stream.__anext__()
    assert (await collect(unharmed, job((5,))))[-1].outcome is Outcome.DONE


async def test_a_stopped_engine_says_so():
    async with engine() as client:
        await client.ensure_ready()
    with pytest.raises(EngineUnavailable, match="stopped"):
        await client.encode(["x"])


positions = st.integers(0, 3000)


@given(positions, positions, st.floats(0.01, 50), st.floats(0, 0.1))
def test_a_prompt_takes_what_its_tokens_take_one_by_one(begin, more, empty, cell):
    told = {"ms_per_token_empty": empty, "ms_per_token_cell": cell}
    one_by_one = sum(empty + cell * (at + 0.5) for at in range(begin, begin + more)) / 1000
    assert prompt_s(told, begin, begin + more) == pytest.approx(one_by_one)


def test_nothing_is_foretold_before_the_engine_has_told_anything():
    assert prompt_s({}, 0, 100) is None


def test_a_token_is_a_share_of_a_full_step_wherever_the_step_is():
    costs = Costs()
    cost = costs.prefill(512)
    for cells in (1_000, 8_000, 100_000):
        assert cost.empty + cost.cell * cells == pytest.approx(costs.milliseconds(512, cells) / 512)


def submitted(ticket, replay=0, urgency=Urgency.INTERACTIVE):
    return InferenceJob(ticket, "f", b"", 1, 8, urgency=urgency, replay=replay)


def test_what_sent_nothing_goes_in_again_and_what_sent_something_fails():
    silent, talking = Running(submitted(1)), Running(submitted(2), begun=True)
    assert after_end([silent, talking], Suspects()) == AfterEnd((1, 2), (2,), (submitted(1, replay=1),))


def test_a_replay_that_sees_a_second_end_fails():
    assert after_end([Running(submitted(1, replay=1))], Suspects((1,))) == AfterEnd((1,), (1,), ())


def test_who_waits_behind_a_suspect_was_not_in_the_child_and_stays_as_it_was():
    flights = [Running(submitted(1, replay=1)), Running(submitted(2, replay=1)), Running(submitted(3))]
    assert after_end(flights, Suspects((1, 2))) == AfterEnd((1,), (1,), ())


def test_only_questions_are_suspects_not_the_computing_of_a_floor():
    jobs = [
        submitted(1),
        submitted(2, replay=1),
        submitted(3, replay=1, urgency=Urgency.BACKGROUND),
        submitted(4, replay=1),
    ]
    assert suspects_of(jobs) == Suspects((2, 4))


def test_suspects_go_in_one_by_one_and_then_all_others_together():
    waiting = {1: submitted(1, replay=1), 2: submitted(2, replay=1), 3: submitted(3)}
    suspects = suspects_of(waiting.values())
    assert suspects.next_jobs(waiting) == [waiting.pop(1)]
    suspects = suspects.after_first()
    assert suspects.next_jobs(waiting) == [waiting.pop(2)]
    suspects = suspects.after_first()
    assert suspects.next_jobs(waiting) == [waiting[3]]


def test_one_that_nobody_waits_for_leaves_the_line_but_for_the_first_which_the_child_has():
    suspects = Suspects((1, 2, 3))
    assert suspects.without(2) == Suspects((1, 3))
    assert suspects.without(1) == suspects
    assert suspects.without(9) == suspects


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.sampled_from(Urgency)), max_size=6), st.data())
def test_every_ticket_fails_at_most_once_and_none_is_lost(kinds, data):
    flights = {n: Running(submitted(n, replay, urgency), told) for n, (told, replay, urgency) in enumerate(kinds)}
    while flights:
        suspects = suspects_of(flight.job for flight in flights.values())
        handed = [one.ticket for one in suspects.next_jobs({n: flight.job for n, flight in flights.items()})]
        for ticket in handed:
            if data.draw(st.booleans()):
                flights[ticket].begun = True
        decided = after_end(flights.values(), suspects)
        assert sorted(decided.inside) == sorted(handed)
        assert sorted([*decided.failed, *(one.ticket for one in decided.again)]) == sorted(handed)
        for ticket in decided.failed:
            del flights[ticket]
        for one in decided.again:
            assert one.replay == 1
            flights[one.ticket] = Running(one)
