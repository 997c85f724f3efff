"""Codices at work, around an engine that computes nothing: what is answered from, and whose floors are computed."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.libraries import fill, request

from codex.following.amendments import effective
from codex.library import Library
from formatters.context import CodexView
from governor.settings import PressureSettings
from orchestrator.codices.floors import Floors
from orchestrator.codices.lifecycle import CodexLifecycle
from orchestrator.codices.resident import ResidentCodices
from orchestrator.codices.serving_identities import FloorModel, IdentityFiles, ServingIdentities
from orchestrator.codices.state import CodexState
from orchestrator.codices.state_store import CodexStateStore
from orchestrator.codices.successors import Successors
from orchestrator.errors import LoadInProgress, NotReady
from orchestrator.prompt.composing import Floor
from orchestrator.prompt.coverage import Coverage, CoverageDecision, CoverageSizes, FloorRoom

pytestmark = pytest.mark.anyio
ROOM = FloorRoom(window=100_000, identity=1, kv_tokens=1_000)


class Engine:
    """Knows floors; a prefill lasts until it is let go."""

    def put_floor(self, name, ids, pool=""):
        pass

    def drop_floor(self, name):
        pass

    async def run(self, job):
        await asyncio.Event().wait()
        yield None


class Builder:
    """States whose floors are named after codex and generation. Each entry of a log is as long as `log_tokens` says."""

    def __init__(self, library):
        self.library = library
        self.log_tokens = 1
        self.busy = 0  # so often another load has the files
        self.followed = []

    def model(self):
        async def count(texts):
            return [1 for _ in texts]

        return SimpleNamespace(tokens=SimpleNamespace(count=count))

    async def built(self, name, room, identity, report, forced=None, keep=None, *, strict=False):
        generation = self.library.catalog.generation(name)
        state = CodexState(
            name=name,
            roots=("/src",),
            generation=generation,
            view=CodexView(name=name, generation=generation.number, tier="map"),
            sizes=CoverageSizes(1_000, None, None),
            decision=CoverageDecision(Coverage.MAP, 1, 500, 3_000, "it fits"),
            tokens=500,
        )
        return await self.amended(state, self.library.catalog.amendments(name, generation.number))

    async def amended(self, state, log):
        digests = effective(state.generation.digests(), log)
        return replace(state, log=log, digests=digests, amended=self.log_tokens * len(log))

    async def with_changes(self, name, state):
        if self.busy:
            self.busy -= 1
            raise LoadInProgress("a load of the same files is running")
        found = self.library.follow(name, state.generation.number, count=len, changed_definitions=lambda *_: None)
        self.followed.append(state.generation.number)
        return await self.amended(state, found.log), found.new

    async def floor(self, codex, identity):
        return Floor(f"{codex.name} {codex.generation}", ())


class House:
    """The codex `code` of one folder, with the file `a.py`."""

    def __init__(self, tmp_path):
        self.root = tmp_path / "code"
        self.library = Library(tmp_path / "data")
        self.store = CodexStateStore(tmp_path / "floors.sqlite3")
        self.builder, self.floors = Builder(self.library), Floors(Engine())
        identities = ServingIdentities(IdentityFiles(tmp_path / "identities"), self.store, lambda: FloorModel("m"))
        machine = SimpleNamespace(
            outlook=SimpleNamespace(budget=1), room=lambda _: ROOM, levels=SimpleNamespace(memory="calm")
        )
        self.residents = ResidentCodices(
            self.library, self.builder, identities, machine, self.floors, self.store, None, PressureSettings()
        )
        successors = Successors(self.residents, self.floors.questions, idle_s=3_600)
        self.lifecycle = CodexLifecycle(
            self.residents, successors, self.library, identities, self.floors, self.store, lambda name: None
        )

    def write(self, text):
        fill(self.root, {"a.py": text})

    def load(self, name="code"):
        return self.library.load(request(self.root, name=name))

    def answers_from(self):
        """The text of `a.py` that a search may show."""
        return self.library.catalog.document_by_digest("a.py", self.residents.digests("code", ["a.py"])["a.py"]).text


@pytest.fixture
async def house(tmp_path):
    one = House(tmp_path)
    one.write("a = 1\n")
    one.load()
    yield one
    await one.lifecycle.stop()
    one.library.close()


async def test_a_codex_answers_from_its_generation_and_log_whatever_a_load_has_read_since(house):
    assert house.answers_from() == "a = 1\n", "it is not built yet"
    await house.residents.build("code")
    house.write("a = 22\n")
    await house.lifecycle.changed("code")
    assert house.answers_from() == "a = 22\n"
    was = await house.lifecycle.load_began("code")
    house.write("a = 333\n")
    house.load()
    assert house.answers_from() == "a = 22\n"
    await house.residents.build("code", release=False)
    assert house.answers_from() == "a = 333\n"
    await house.residents.go_back(was)
    assert house.answers_from() == "a = 22\n"
    assert house.residents.digests("code", ["gone.py"]) == {}


async def test_behind_a_cancelled_load_a_floor_that_nobody_can_ask_on_is_not_computed(house):
    await house.residents.build("code")
    was = await house.lifecycle.load_began("code")
    house.builder.log_tokens = 501  # with its log the codex takes more than there is
    house.write("a = 22\n")
    await house.lifecycle.changed("code")
    house.load()
    await house.residents.build("code", release=False)
    assert house.floors.progress("code") is not None
    await house.residents.go_back(was)
    assert house.residents.get("code").amended == 501
    assert house.floors.progress("code") is None


async def test_who_asks_a_codex_whose_log_leaves_no_room_is_told_its_sizes_where_no_generation_comes(
    house, monkeypatch
):
    await house.residents.build("code")
    house.builder.log_tokens = 501
    house.write("a = 22\n")
    await house.lifecycle.changed("code")

    async def patient_no_longer(*_):
        pass

    monkeypatch.setattr(Successors, "ended", patient_no_longer)
    has, most = house.residents.get("code").tokens_now, house.residents.get("code").most_tokens(ROOM)
    assert has > most
    with pytest.raises(NotReady, match=f"it has {has:,} tokens with its changes, and {most:,} leave room"):
        await house.lifecycle.ensure_built("code")


@pytest.mark.parametrize(
    ("log", "over", "waits"),
    [(400, 400, True), (400, 401, False), (400, 0, False), (40, 1, False)],
    ids=["too long by the log", "too long without it", "too long in characters", "no generation is due"],
)
async def test_a_question_waits_for_a_new_generation_where_that_makes_the_room_and_must_be_shorter_elsewhere(
    house, log, over, waits
):
    await house.residents.build("code")
    house.builder.log_tokens = log
    house.write("a = 22\n")
    await house.lifecycle.changed("code")
    told = house.lifecycle.wait_for_room(house.residents.get("code"), over)
    due = "codex code needs a new generation: 400 tokens are too many, and its changes have 400; one is on its way"
    assert (told and told.message) == (due if waits else None)


async def test_a_generation_is_served_with_what_changed_meanwhile_and_not_before_that_can_be_read(house):
    await house.residents.build("code")
    house.write("a = 22\n")
    house.load()
    made = await house.residents.prepare("code", SimpleNamespace(coverage="", files="a long log"))
    house.write("a = 333\n")
    house.builder.busy = 1
    with pytest.raises(LoadInProgress):  # the table tries again
        await house.residents.commit(made)
    assert (house.builder.followed, house.answers_from()) == ([], "a = 1\n")
    await house.residents.commit(made)
    assert (house.builder.followed, house.residents.get("code").generation.number) == ([2], 2)
    assert house.answers_from() == "a = 333\n"
