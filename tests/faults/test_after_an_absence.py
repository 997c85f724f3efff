"""Files change while no daemon runs: whoever asks before they are compared with the disk is told so, model or none."""

import asyncio
import os
import shutil
from contextlib import asynccontextmanager

import pytest
from support.waiting import SOON

from orchestrator import bootstrap
from orchestrator.model.host import host_of
from orchestrator.service import Ask, Message, Principal
from orchestrator.settings.model import ModelSettings, Settings
from orchestrator.settings.paths import Paths
from orchestrator.wire.requests import LoadBody

OWNER = Principal(uid=os.getuid(), gid=os.getgid(), pid=1, scopes=frozenset({"admin"}))
COMPARED = "vaults: being compared with the disk"

pytestmark = pytest.mark.anyio


def no_other_model(setting):
    raise AssertionError("nobody asks for another model")


@asynccontextmanager
async def program(home, model, *, held=False, spoilt=False):
    """Started, and stopped behind it. `held`: until `made.released` is called nothing is compared with the disk; `spoilt`:
    the model's file is one no longer when it is loaded."""
    paths = Paths.of({f"XDG_{name}_HOME": str(home / name) for name in ("CONFIG", "DATA", "STATE", "CACHE")})
    paths.prepare()
    settings = Settings(model=ModelSettings(path=str(model), threads=1))
    made = bootstrap.build(settings, paths, host_of(settings, paths), exchange=no_other_model)
    if spoilt:
        model.write_bytes(model.read_bytes()[:1000])
    lock = made.residents.disk("vaults")
    if held:
        await lock.acquire()
    await made.start()
    try:
        yield made, lock
    finally:
        if held and lock.locked():
            lock.release()
        await made.stop()


@pytest.fixture
async def left(tmp_path, quoter_model):
    """A home and the code that a daemon, which is gone, had loaded; a file was changed and one deleted since."""
    home, code, model = tmp_path / "home", tmp_path / "vaults", tmp_path / "model.gguf"
    shutil.copy(quoter_model, model)
    code.mkdir()
    (code / "zebra.py").write_text("# The access code of vault zebra is 4815162.\n")
    (code / "walrus.py").write_text("# The access code of vault walrus is 9273645.\n")
    async with program(home, model) as (made, _):
        async for _ in made.load(OWNER, LoadBody(path=str(code))):
            pass
    (code / "zebra.py").write_text("# The access code of vault zebra is 1029384.\n")
    (code / "walrus.py").unlink()
    return home, model


async def found(made, query="access code"):
    return await made.search(OWNER, query, "vaults", 5, False, "")


async def taken_in(made):
    """Returns when what changed is searchable."""
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "changes of vaults"]
    async with asyncio.timeout(SOON):
        await task


async def test_a_search_before_the_comparison_says_so_and_after_it_finds_what_stands(left):
    async with program(*left, held=True) as (made, lock):
        assert made.reports.gauge.of("vaults").word == "being compared with the disk"
        assert any(COMPARED in notice for notice in (await found(made)).notices)
        lock.release()
        await taken_in(made)
        report = await found(made)
        assert [hit.path for hit in report.hits] == ["zebra.py"]
        assert "1029384" in report.hits[0].snippet


async def test_an_answer_that_is_asked_for_before_the_comparison_knows_what_changed_or_says_so(left):
    async with program(*left, held=True) as (made, lock):
        question = Ask(OWNER, (Message("user", "The access code of vault zebra is"),), codex="vaults", max_tokens=8)
        asked = asyncio.ensure_future(events_of(made.ask(question)))
        assert COMPARED in made.reports.gauge.of("vaults").unseen
        lock.release()
        lore = (await asked)[-1].lore
        told = any(COMPARED in action for action in lore.governor.actions)
        assert told or set(lore.codex.amendments) == {"walrus.py", "zebra.py"}


async def events_of(events):
    return [event async for event in events]


async def test_codices_are_followed_where_no_model_can_be_loaded(left):
    async with program(*left, spoilt=True) as (made, _):
        await taken_in(made)
        assert made.reports.gauge.of("vaults").word == "watched"
        report = await found(made)
        assert [hit.path for hit in report.hits] == ["zebra.py"]
        assert report.notices == ()
