"""What every implementation of the port between the routes and the program keeps."""

import asyncio
import os
from contextlib import aclosing, asynccontextmanager

import pytest
from support.small_reports import KINDS
from support.small_service import SmallService
from support.waiting import SOON

from orchestrator import bootstrap
from orchestrator.errors import NotFound
from orchestrator.model.host import host_of
from orchestrator.service import Answered, Ask, Message, Principal, Text
from orchestrator.settings.model import ModelSettings, Settings
from orchestrator.settings.paths import Paths
from orchestrator.wire.answers import PlanReply
from orchestrator.wire.requests import LoadBody

OWNER = Principal(uid=os.getuid(), gid=os.getgid(), pid=1, scopes=frozenset({"admin"}))

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def small(folder, model):
    yield SmallService()


def no_other_model(setting):
    raise AssertionError("nobody asks for another model")


@asynccontextmanager
async def program(folder, model):
    """The program itself on the built-in model, with a codex of a few lines."""
    paths = Paths.of({f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "DATA", "STATE", "CACHE")})
    paths.prepare()
    settings = Settings(model=ModelSettings(path=str(model), threads=1))
    made = bootstrap.build(settings, paths, host_of(settings, paths), exchange=no_other_model)
    code = folder / "demo"
    code.mkdir()
    (code / "run.py").write_text("def run():\n    return 'forever and ever and forever and ever'\n")
    await made.start()
    try:
        await events_of(made.load(OWNER, LoadBody(path=str(code), watch=False)))
        yield made
    finally:
        await made.stop()


@pytest.fixture(scope="module", params=[small, program], ids=["small", "program"])
async def service(request, tmp_path_factory, quoter_model):
    """An implementation with the codex `demo` loaded."""
    async with request.param(tmp_path_factory.mktemp("service"), quoter_model) as running:
        yield running


def asking(text, **options):
    return Ask(OWNER, (Message("user", text),), **options)


async def events_of(stream):
    return [event async for event in stream]


async def test_an_ask_ends_with_one_answered_event_and_nothing_after_it(service):
    events = await events_of(service.ask(asking("hello there", codex="demo")))
    assert [isinstance(event, Answered) for event in events].count(True) == 1
    assert isinstance(events[-1], Answered)
    assert any(isinstance(event, Text) for event in events)


async def test_the_lore_object_has_six_blocks_in_their_order_and_its_sums_agree(service):
    answered = (await events_of(service.ask(asking("hello", codex="demo"))))[-1]
    assert tuple(block.kind for block in answered.lore.blocks) == KINDS
    assert all(block.cached <= block.tokens for block in answered.lore.blocks)
    assert answered.lore.prompt.cached + answered.lore.prompt.computed == answered.lore.prompt.tokens
    assert (answered.prompt_tokens, answered.cached_tokens) == (
        answered.lore.prompt.tokens,
        answered.lore.prompt.cached,
    )


async def test_closing_an_ask_early_ends_it_and_another_one_is_answered(service):
    async with aclosing(service.ask(asking("forever and ever", codex="demo"))) as events:
        async for event in events:
            if isinstance(event, Text):
                break
    async with asyncio.timeout(SOON):
        assert isinstance((await events_of(service.ask(asking("hello", codex="demo"))))[-1], Answered)


async def test_an_unknown_codex_is_not_found_by_anyone(service):
    with pytest.raises(NotFound):
        await events_of(service.ask(asking("hello", codex="no-such-codex")))
    with pytest.raises(NotFound):
        await service.plan(asking("hello", codex="no-such-codex"))
    with pytest.raises(NotFound):
        await service.codex(OWNER, "no-such-codex")
    with pytest.raises(NotFound):
        await service.drop(OWNER, "no-such-codex")
    with pytest.raises(NotFound):
        await service.cancel_load(OWNER, "no-such-codex")


async def test_an_unknown_session_is_not_found(service):
    for call in (service.records.session(OWNER, "none"), service.records.drop_session(OWNER, "none")):
        with pytest.raises(NotFound):
            await call


async def test_a_load_ends_with_the_codex_which_is_then_known_until_it_is_dropped(service, tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    events = await events_of(service.load(OWNER, LoadBody(path=str(tmp_path), name="fresh", watch=False)))
    assert [event.event for event in events] == ["progress"] * (len(events) - 1) + ["loaded"]
    keys = {
        "name",
        "root",
        "generation",
        "files",
        "skipped",
        "tokens",
        "tier",
        "reason",
        "hint",
        "kv_bytes",
        "indexed_chunks",
    }
    assert keys <= events[-1].codex.model_fields_set
    assert (await service.codex(OWNER, "fresh")).root == str(tmp_path)
    await service.drop(OWNER, "fresh")
    assert "fresh" not in {codex.name for codex in await service.codices(OWNER)}


async def test_a_plan_has_the_objects_of_an_answer_and_its_own(service):
    plan = await service.plan(asking("how?", codex="demo"), prompt=True)
    assert isinstance(plan, PlanReply)
    assert plan.codex.name == "demo"
    assert plan.text
    assert not (await service.plan(asking("how?", codex="demo"))).text


async def test_search_answers_with_places(service):
    found = await service.search(OWNER, "run", "demo", 3, False, "/")
    assert found.hits
    assert all(hit.start <= hit.end for hit in found.hits)


async def test_models_status_and_readiness_are_told(service):
    assert [model.id for model in await service.models() if model.loaded] == [await service.loaded_model()]
    assert "demo" in {codex.name for codex in (await service.status(OWNER)).codices}
    ready, detail = await service.ready()
    assert isinstance(ready, bool)
    assert isinstance(detail, str)


async def test_a_pause_lasts_until_it_is_resumed_and_a_held_one_until_somebody_ends_it(service):
    paused = await service.pause("a test", None)
    assert (paused.away.cause, paused.away.why, paused.away.gone) == ("pause", "a test", True)
    assert (await service.status(OWNER)).paused == paused.away
    assert service.resume().ended == ("a test",)
    assert (await service.status(OWNER)).paused is None
    async with aclosing(service.hold("another", None, "")) as events:
        async for event in events:
            if event.event == "away":
                break
        assert event.away.why == "another"
        assert service.resume(event.name).ended == ("another",)
    assert (await service.status(OWNER)).paused is None


async def test_the_prefix_of_a_codex_can_be_taken_in_again_and_that_of_an_unknown_one_is_not_found(service):
    pieces = await events_of(service.export_floor(OWNER, "demo"))

    async def body():
        for piece in pieces:
            yield piece

    taken = await service.import_floor(body())
    assert (taken.codex, taken.tokens > 0) == ("demo", True)
    with pytest.raises(NotFound):
        await events_of(service.export_floor(OWNER, "no-such-codex"))
