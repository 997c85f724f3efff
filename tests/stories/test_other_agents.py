"""Other agents: the protocol's own client starts `lore mcp` as an editor does, beside a codebase that the daemon holds."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult
from support.house import CODES, codebase, lent, question, reply, until

LORE = Path(sys.executable).parent / "lore"
CLIENTS = {"2026-07-28": "auto", "2025-11-25": "legacy"}  # by the revision that they come to


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        loaded = daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait", "--json")
        assert loaded.returncode == 0, loaded.stderr
        yield daemon


@asynccontextmanager
async def agent(house: Any, revision: str) -> AsyncIterator[Client]:
    """Started in the codebase's folder."""
    command = StdioServerParameters(command=str(LORE), args=["mcp"], env=house.environment, cwd=house.folder / "vaults")
    async with Client(command, mode=CLIENTS[revision]) as client:
        assert client.protocol_version == revision
        yield client


def told(result: CallToolResult) -> str:
    assert not result.is_error, result
    return result.content[0].text


@pytest.mark.parametrize("revision", CLIENTS)
def test_an_agent_finds_out_what_there_is_asks_about_it_and_remembers(house, revision):
    async def story() -> None:
        async with agent(house, revision) as client:
            assert [one.name for one in (await client.list_tools()).tools][:3] == ["ask", "search", "symbol"]
            codex, lines = (await client.list_resources()).resources
            assert "3 files" in (await client.read_resource(codex.uri)).contents[0].text
            made = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
            assert [one.format(name=codex.name) for one in made] == [codex.uri, lines.uri]
            assert "zebra.py: " in (await client.read_resource(lines.uri)).contents[0].text

            answer = told(await client.call_tool("ask", {"question": question("zebra"), "max_tokens": 10}))
            assert CODES["zebra"] in answer
            places = told(await client.call_tool("search", {"query": '"step_7"'}))
            assert places.startswith("steps.py:")
            assert told(await client.call_tool("symbol", {"name": "step_7"})).startswith("steps.py:")
            assert "3 # The access" in told(await client.call_tool("read", {"path": "zebra.py", "start": 3, "end": 3}))
            assert (await client.call_tool("read", {"path": "/etc/passwd"})).is_error
            advice = told(await client.call_tool("context_strategy", {"query": "why?", "char_count": 40_000_000}))
            assert "does not fit: search it" in advice
            assert "coverage full" in told(await client.call_tool("plan", {"question": "Where is the code?"}))

            text = f"Vault zebra is opened by hand ({revision})."
            kept = told(await client.call_tool("remember", {"text": text, "cite": ["zebra.py:3"]}))
            assert kept.startswith("proposed as ")
            assert text not in told(await client.call_tool("recall", {"query": text}))
            assert house.lore("memory", "confirm", kept.split()[2].rstrip(";")).returncode == 0
            assert text in told(await client.call_tool("recall", {"query": text}))

    anyio.run(story)


@pytest.mark.parametrize("revision", CLIENTS)
def test_an_agent_that_cancels_its_question_ends_the_answer_in_the_daemon(house, revision):
    def running() -> int:
        return reply(house, "/v1/status")["queue"]["running"]

    async def story() -> None:
        async with agent(house, revision) as client, anyio.create_task_group() as group:
            asked = {"question": "tick tock " * 6 + "tick", "codex": "none", "max_tokens": 20_000}  # quotes itself
            group.start_soon(client.call_tool, "ask", asked)
            await anyio.to_thread.run_sync(until, lambda: running() == 1)
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(until, lambda: running() == 0)

    anyio.run(story)


def test_while_a_floor_is_computed_an_agent_is_told_how_far(house):
    """A codex that is loaded and asked at once: the question waits for its floor."""
    said: list[tuple[float, float | None, str | None]] = []

    async def hear(done: float, total: float | None, words: str | None) -> None:
        said.append((done, total, words))

    async def story() -> None:
        async with agent(house, "2026-07-28") as client:
            folder = codebase(house.folder / "larger", functions=600)
            assert house.lore("load", folder, "--json").returncode == 0
            asked = {"question": question("zebra"), "codex": "larger", "max_tokens": 10}
            assert CODES["zebra"] in told(await client.call_tool("ask", asked, progress_callback=hear))

    anyio.run(story)
    assert any(words.startswith("computing the codex") for _, _, words in said)
    assert [done for done, _, _ in said] == sorted({done for done, _, _ in said})
