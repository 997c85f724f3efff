"""Whether an answer can be given: a model that was there says nothing of a process that runs."""

import asyncio
from types import SimpleNamespace

import pytest

from orchestrator.engine.client.supervisor import ChildState
from orchestrator.program import Operations

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("state", list(ChildState))
async def test_it_is_ready_while_the_engine_s_process_is_and_not_while_it_cannot_start(state):
    spoken = asyncio.get_running_loop().create_future()
    spoken.set_result(object())
    client = SimpleNamespace(state=state, info=object(), reason="no process to spare")
    ready, why = await Operations.ready(SimpleNamespace(model_ready=lambda: spoken, client=client))
    assert ready == (state is ChildState.READY)
    assert why == "no process to spare"
