"""Schemas that would hold up everybody, in the real child: nobody beside them waits, and the child lives."""

import asyncio
import json
import time
from pathlib import Path

import pytest
from support.real_engine import ask, code, engine, load

from orchestrator.engine.messages import Outcome, Reason

pytestmark = pytest.mark.anyio

HOLDING = [
    "^(a|a|a)*{1000}(b+)+$",
    "^((a|a|a)*){1000}(b+)+$",
    "^((a|a|a)*){900}(b+)+$",
    "^(a|a|a|a|a|a)*$",
    "^((a?){1000}){1}$",
    "^((a?){100}){30}b$",
    "^(([^b]*){30}){30}$",
    "^(.*.*.*){300}$",
]
LONGEST_WAIT_S = 10.0  # they held everybody for 20 to 80 s; a question takes 0.1 s, on a busy machine some more


async def test_questions_beside_ambiguous_patterns_are_answered_at_once(quoter_model: Path) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        schemas = [json.dumps({"type": "string", "pattern": pattern}) for pattern in HOLDING]
        asked = [asyncio.create_task(ask(client, 15, schema=schema)) for schema in schemas]
        waited = []
        for vault in (16, 17, 18):
            began = time.monotonic()
            assert (await ask(client, vault))[0] == code(vault)
            waited.append(time.monotonic() - began)
        for task in asked:
            _, end = await task
            assert end.outcome is Outcome.DONE or end.reason is Reason.SCHEMA
        assert max(waited) < LONGEST_WAIT_S
        assert client.restarts == 0


async def test_a_keyword_that_is_not_enforced_is_named(quoter_model: Path) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        _, end = await ask(client, 15, schema=json.dumps({"type": "integer", "multipleOf": 7}))
        assert (end.outcome, end.reason) == (Outcome.REFUSED, Reason.SCHEMA)
        assert "multipleOf" in end.detail
