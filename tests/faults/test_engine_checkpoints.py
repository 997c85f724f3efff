"""What can be wrong with a checkpoint when the real child finds it, and conversations whose model keeps no ranges."""

import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from support import odd_models
from support.real_engine import ask, code, collected, engine, load, next_child, said

from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import Completion, InferenceJob, Outcome, bytes_to_ids, ids_to_bytes

pytestmark = pytest.mark.anyio

FLOOR = [number * 11 % 4000 for number in range(700)]


def states(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.kv"))


# ---- files -----------------------------------------------------------------------------------------------------------


def emptied(files: list[Path]) -> None:
    for file in files:
        file.write_bytes(b"")


def halved(files: list[Path]) -> None:
    for file in files:
        os.truncate(file, file.stat().st_size // 2)


def flipped(files: list[Path]) -> None:
    """One bit, in the middle of the state."""
    for file in files:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)


def exchanged(files: list[Path]) -> None:
    """Each whole and sound, under another one's name."""
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents[1:] + contents[:1], strict=True):
        file.write_bytes(content)


def of_another_version(files: list[Path]) -> None:
    for file in files:
        data = bytearray(file.read_bytes())
        struct.pack_into("<H", data, 6, 99)
        file.write_bytes(data)


def foreign(files: list[Path]) -> None:
    for file in files:
        file.write_bytes(b"GGUF" + os.urandom(5000))


@pytest.mark.parametrize("spoil", [emptied, halved, flipped, exchanged, of_another_version, foreign])
async def test_a_checkpoint_that_is_not_what_it_should_be_is_a_miss_and_logged_and_the_answer_is_right(
    quoter_model: Path, cache: Path, spoil: Callable[[list[Path]], None], capfd: pytest.CaptureFixture[str]
) -> None:
    spoil(states(cache))
    async with engine(quoter_model, cache) as client:
        await load(client)
        text, end = await ask(client, 11)
        assert (text, end.outcome, end.cached, client.restarts) == (code(11), Outcome.DONE, 0, 0)
        text, end = await ask(client, 12)
        assert (text, end.cached > end.computed) == (code(12), True)
    if spoil is not exchanged:  # a name that is not its own is dropped as another model's are
        assert "not usable" in capfd.readouterr().err


async def test_an_engine_that_has_nothing_to_do_reports_what_was_written(quoter_model: Path, tmp_path: Path) -> None:
    async with engine(quoter_model, tmp_path) as client:
        await load(client)
        await ask(client, 10)
        with anyio.fail_after(60):
            while not all_written(client, tmp_path):
                await client.next_snapshot()


def all_written(client: EngineClient, cache: Path) -> bool:
    """Whether the floor and the tail are on disk, by the last that the engine told."""
    counted, files = client.snapshot.counters, states(cache)
    said = (counted.get("tier_segments"), counted.get("tier_disk_bytes"))
    return len(files) > 1 and said == (len(files), sum(file.stat().st_size for file in files))


# ---- tails without ranges --------------------------------------------------------------------------------------------


async def turn(client: EngineClient, talk: list[int]) -> tuple[list[int], Completion]:
    """Asks the next question of a conversation; returns all of it, and the end of the answer."""
    tail = [*talk, 5, len(talk), 6]
    messages = await collected(client.run(InferenceJob(0, "codex", ids_to_bytes(tail), 1, 6)))
    answer = [token for message in messages for token in bytes_to_ids(getattr(message, "ids", b""))]
    assert isinstance(messages[-1], Completion)
    assert messages[-1].outcome is Outcome.DONE, said(messages)
    return [*tail, *answer], messages[-1]


async def talked(client: EngineClient, turns: int) -> list[int]:
    client.put_floor("codex", ids_to_bytes(FLOOR))
    talk: list[int] = []
    for _ in range(turns):
        talk, _ = await turn(client, talk)
    return talk


async def talked_and_kept(client: EngineClient, cache: Path) -> list[int]:
    """Three turns, of which each is on disk: they are written behind the answers."""
    talk = await talked(client, 2)
    while len(states(cache)) < 3:  # the floor and two turns
        await client.encode(["x"])
    before = set(states(cache))
    talk, _ = await turn(client, talk)
    while not set(states(cache)) - before:
        await client.encode(["x"])
    return talk


@pytest.mark.parametrize("kind", ["recurrent", "hybrid", "sliding"])
async def test_a_conversation_on_a_memory_without_ranges_comes_back_after_a_kill_and_after_a_stop(
    kind: str, tmp_path: Path
) -> None:
    model, cache = getattr(odd_models, kind)(tmp_path / "model.gguf"), tmp_path / "kv"
    async with engine(model, batch=64) as client:
        wanted = await talked(client, 5)
    async with engine(model, cache, batch=64) as client:
        talk = await talked_and_kept(client, cache)
        os.kill(client.pid or 0, signal.SIGKILL)
        await next_child(client)
        talk, end = await turn(client, talk)
        assert end.computed <= 3 + 1  # the question, and the answer's last token
    async with engine(model, cache, batch=64) as client:
        client.put_floor("codex", ids_to_bytes(FLOOR))
        talk, end = await turn(client, talk)
        assert end.computed <= 3 + 1
    assert talk == wanted
