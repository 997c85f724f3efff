"""Schemas that would hold up everybody, in the real child: nobody beside them waits, and the child lives."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from support.call_forms import HERMES
from support.hostile_schemas import EVERY_HOSTILE, MOST_MB, taking
from support.real_engine import ask, code, collected, engine, load, question

from orchestrator.engine.calling import OfferedTool, ToolRules
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import InferenceJob, Outcome, Reason

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
MOST_S = 10.0  # of the child's processor: they held everybody for 20 to 80 s; a question takes 0.1 s


async def test_questions_beside_ambiguous_patterns_are_answered_at_once(quoter_model: Path) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        schemas = [json.dumps({"type": "string", "pattern": pattern}) for pattern in HOLDING]
        asked = [asyncio.create_task(ask(client, 15, schema=schema)) for schema in schemas]
        waited = []
        for vault in (16, 17, 18):
            before = processor_s(client)
            assert (await ask(client, vault))[0] == code(vault)
            waited.append(processor_s(client) - before)
        for task in asked:
            _, end = await task
            assert end.outcome is Outcome.DONE or end.reason is Reason.SCHEMA
        assert max(waited) < MOST_S
        assert client.restarts == 0


def processor_s(client: EngineClient) -> float:
    """What the child has computed so far, however busy the machine is."""
    return float(sum(psutil.Process(client.pid).cpu_times()[:2]))


def large(schema: str) -> str:
    """A schema of 40 kB, which takes a large part of a second to compile."""
    objects = [{"properties": {f"{schema}{at}{letter}": {"type": "string"} for letter in "abcde"}} for at in range(200)]
    return json.dumps({"properties": {f"{schema}{at}": one for at, one in enumerate(objects)}})


async def test_texts_are_read_before_the_large_schemas_that_were_sent_first_are_compiled(quoter_model: Path) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        await ask(client, 15)
        jobs = [replace(await question(client, 15, schema=large(f"s{one}")), max_tokens=1) for one in range(3)]
        done = []

        async def note(job: InferenceJob) -> None:
            assert await collected(client.run(job))
            done.append("schema")

        asked = [asyncio.create_task(note(job)) for job in jobs]
        await asyncio.sleep(0)  # the jobs are sent
        await client.encode(["a text"])
        done.append("text")
        await asyncio.gather(*asked)
        assert done[0] == "text"


SURPRISING = [
    json.dumps({"type": "integer", "maximum": 10**400}),
    json.dumps({"type": "string", "pattern": "(" * 256}),
    '{"title": "' + "}" * 12_000 + '", "items": ' + '{"items": ' * 4000 + "{}" + "}" * 4001,
    '{"const": "\ud800"}',
    json.dumps({"type": "null", "\ud800" * 3000: 1}),
]


async def test_schemas_of_numbers_brackets_and_characters_that_nobody_foresaw_are_refused_and_the_child_lives(
    quoter_model: Path,
) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        for schema in SURPRISING:
            _, end = await ask(client, 15, schema=schema)
            assert (end.outcome, end.reason) == (Outcome.REFUSED, Reason.SCHEMA), schema[:80]
            assert end.detail.isprintable() and len(end.detail) < 1000
        assert (await ask(client, 16))[0] == code(16)
        assert client.restarts == 0


async def test_drafted_answers_in_a_small_batch_end_well(quoter_model: Path) -> None:
    async with engine(quoter_model, batch=32, drafts=True) as client:
        await load(client)
        drafted = 0
        while not drafted:  # where steps seem to cost too much, nothing is drafted
            found = await asyncio.gather(*(ask(client, vault) for vault in range(20, 26)))
            assert [text for text, _ in found] == [code(vault) for vault in range(20, 26)]
            drafted = sum(end.drafted for _, end in found)
        assert client.restarts == 0


async def test_a_keyword_that_is_not_enforced_is_named(quoter_model: Path) -> None:
    async with engine(quoter_model) as client:
        await load(client)
        _, end = await ask(client, 15, schema=json.dumps({"type": "array", "uniqueItems": True}))
        assert (end.outcome, end.reason) == (Outcome.REFUSED, Reason.SCHEMA)
        assert "uniqueItems" in end.detail


def calling(schema: str) -> ToolRules:
    return ToolRules(HERMES, (OfferedTool("t0", taking(schema)),), required=True)


def peak_mb(pid: int) -> float:
    """Since `forget_peak`."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1000


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


@pytest.mark.parametrize("way", ["schema", "calls"])
async def test_neither_a_hostile_schema_nor_all_that_are_kept_take_much_memory_of_the_child(
    qwen_model: Path, way: str
) -> None:
    """On 151,936 words, as an answer's own schema and, some of them, as the parameters of a tool."""
    async with engine(qwen_model) as client:
        await load(client)
        asking = calling if way == "calls" else str
        await ask(client, 15, **{way: asking('{"type": "boolean"}')})
        assert client.pid is not None
        child, took = psutil.Process(client.pid), dict[str, float]()
        at_first = child.memory_info().rss / 1e6
        for schema in EVERY_HOSTILE if way == "schema" else EVERY_HOSTILE[::4]:
            forget_peak(client.pid)
            before = peak_mb(client.pid)
            await ask(client, 15, **{way: asking(schema)})
            took[schema] = peak_mb(client.pid) - before
        assert max(took.values()) <= MOST_MB
        assert child.memory_info().rss / 1e6 - at_first <= MOST_MB
        assert client.restarts == 0
