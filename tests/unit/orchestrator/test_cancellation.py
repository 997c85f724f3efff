import asyncio

import pytest

from orchestrator.cancellation import unless

pytestmark = pytest.mark.anyio


class TooLateError(Exception):
    pass


async def never():
    await asyncio.Event().wait()


async def of(value):
    return value


async def broken():
    raise ValueError("broken")


async def test_the_works_result_is_given_and_what_did_not_happen_is_no_longer_waited_for():
    rival = asyncio.ensure_future(never())
    assert await unless(rival, of(7), TooLateError()) == 7
    assert rival.cancelled()


async def test_work_is_ended_before_the_fault_is_raised():
    job = asyncio.ensure_future(never())
    with pytest.raises(TooLateError):
        await unless(of(None), job, TooLateError())
    assert job.cancelled()


async def test_of_two_that_end_at_once_work_wins():
    assert await unless(of(None), of(7), TooLateError()) == 7


async def test_work_that_ends_with_what_happens_wins_also_where_it_was_waited_for():
    happened, done = asyncio.Event(), asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(unless(happened.wait(), done, TooLateError()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    happened.set()
    done.set_result(7)
    assert await waiting == 7


@pytest.mark.parametrize("ends", ["result", "fault"])
async def test_work_that_ends_its_own_way_when_it_is_cancelled_leaves_no_cancellation_behind(ends):
    async def stubborn():
        try:
            await never()
        except asyncio.CancelledError:
            return await (of(7) if ends == "result" else broken())

    task = asyncio.current_task()
    assert task is not None
    try:
        assert await unless(of(None), stubborn(), TooLateError()) == 7
    except ValueError:
        assert ends == "fault"
    assert task.cancelling() == 0


async def test_a_fault_of_the_work_is_its_own():
    with pytest.raises(ValueError, match="broken"):
        await unless(never(), broken(), TooLateError())


async def test_a_fault_in_what_is_waited_for_counts_as_its_end():
    with pytest.raises(TooLateError):
        await unless(broken(), never(), TooLateError())


async def test_who_is_cancelled_leaves_neither_behind():
    rival, job = asyncio.ensure_future(never()), asyncio.ensure_future(never())
    waiting = asyncio.ensure_future(unless(rival, job, TooLateError()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert rival.cancelled()
    assert job.cancelled()
