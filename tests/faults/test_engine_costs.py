"""What steps cost outlives the child that learned it, also one that is killed."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from support.house import until
from support.real_engine import ask, code, engine, load, next_child

from orchestrator.engine.costs import MATERIAL, CostFile, Costs, checked, predictions

pytestmark = pytest.mark.anyio


def kept(cache: Path) -> list[Path]:
    return [path for path in cache.glob("costs-*") if path.suffix != ".tmp"]


def taken_up(path: Path) -> list[float]:
    costs = Costs()
    CostFile(costs, path)
    return predictions(costs)


async def test_a_killed_child_leaves_what_its_steps_cost_and_the_next_one_takes_it_up(
    quoter_model: Path, tmp_path: Path
) -> None:
    async with engine(quoter_model, tmp_path) as client:
        await load(client)
        await ask(client, 10)
        await asyncio.to_thread(until, lambda: kept(tmp_path))
        pid = client.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        (path,) = kept(tmp_path)
        assert taken_up(path) != pytest.approx(predictions(Costs()), rel=MATERIAL)
        await next_child(client)
        assert (await ask(client, 11))[0] == code(11)
    assert kept(tmp_path) == [path]


async def test_damaged_costs_are_learned_anew_and_the_answer_is_right(quoter_model: Path, cache: Path) -> None:
    (path,) = kept(cache)
    path.write_bytes(path.read_bytes()[:-9] + b"1e308]]}\n")
    async with engine(quoter_model, cache) as client:
        await load(client)
        text, _ = await ask(client, 11)
        assert (text, client.restarts) == (code(11), 0)
    assert checked(path.read_bytes()), "nothing was learned"
