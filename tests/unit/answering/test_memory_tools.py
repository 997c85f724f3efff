"""What a model may do with memories: read those of its user, and propose."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.scripted_agent import Bench, ScriptedEngine, text_of

from formatters.context import CodexView, IdentityView, SigilView, TurnContext
from orchestrator.answering.memory_tools import PRIVATE, MemoryTools
from orchestrator.answering.sessions import SessionStore, StoredTurn
from orchestrator.errors import NotFound
from orchestrator.karma.changes import MOST_TEXT
from orchestrator.karma.records import CodeCitation, Kind, MemoryRecord, MemoryState, NewMemory
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.prompt.composing import Composer, TokenCache
from orchestrator.prompt.situation import lacking_scope, may_use
from orchestrator.wire.memories import MOST_NAME

pytestmark = pytest.mark.anyio
ME, OTHER = 1000, 1001
FILES = {"cache.py": "import redis\nport = 6379\n"}


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[MemoryTools]:
    store = MemoryStore(tmp_path / "memories.sqlite3", clock=lambda: 1_750_000_000.0)
    sessions = SessionStore(tmp_path / "sessions.sqlite3", clock=lambda: 1_750_000_000.0)
    yield MemoryTools(store, sessions, Staleness(store, lambda codex, path: FILES.get(path)))
    store.close()
    sessions.close()


def asking(uid: int = ME, *, private: bool = False) -> Any:
    turn = TurnContext(
        identity=IdentityView(name="default"),
        sigil=SigilView(name="owner", uid=uid, scopes=frozenset({"admin"})),
        codex=CodexView(name="demo"),
        query="?",
        private=private,
    )
    return SimpleNamespace(deps=turn)


HOSTILE = ("", "\\u0000", "\\ud800", "x" * 100_000, "' OR 1=1 --", '\\"', "a AND (", "NEAR(", "*", "%", "\\n" * 500)
FIELDS = {
    "recall_context": ("query", "kind"),
    "expand_detail": ("id",),
    "session_search": ("query",),
    "fact_store": ("text", "subject", "attribute"),
    "fact_feedback": ("id", "reason"),
}


@pytest.mark.parametrize("name", FIELDS)
async def test_whatever_a_model_writes_into_a_call_its_turn_goes_on_and_nothing_large_is_kept(
    tools: MemoryTools, composer: Composer, tokens: TokenCache, name: str
) -> None:
    """Strings of JSON that are no text, no id and no query, or too large, in each argument in turn."""
    for field in FIELDS[name]:
        for bad in HOSTILE:
            given = ", ".join(f'"{one}": "{bad if one == field else "a pond"}"' for one in FIELDS[name])
            call = f'<tool_call>{{"name": "{name}", "arguments": {{{given}}}}}</tool_call>'
            bench = Bench(composer, tokens, ScriptedEngine([call, "So be it."]), more=tools.functions)
            assert text_of(await bench.events(asking().deps)) == "So be it.", (field, bad[:20])
    for one in tools.store.all_of(ME):
        assert one.state is MemoryState.PROPOSED
        assert len(one.text) <= MOST_TEXT
        assert max(len(one.subject), len(one.attribute)) <= MOST_NAME


def remember(tools: MemoryTools, text: str, kind: Kind = Kind.FACT, **more: Any) -> MemoryRecord:
    return tools.store.add(replace(NewMemory(ME, kind, text), **more))


async def test_what_is_recalled_has_its_id_kind_day_and_state(tools: MemoryTools) -> None:
    one = remember(tools, "The cache is Redis.", created=1_750_000_000.0)
    remember(tools, "The garden has a pond.")
    assert await tools.recall_context(asking(), "which cache") == f"{one.id} fact, 2025-06-15, new: The cache is Redis."
    assert await tools.recall_context(asking(), "which cache", "decision") == "nothing is remembered about it"


async def test_another_users_memories_are_neither_recalled_nor_read_nor_doubted(tools: MemoryTools) -> None:
    one = remember(tools, "The cache is Redis.")
    assert await tools.recall_context(asking(OTHER), "cache") == "nothing is remembered about it"
    reads: list[Callable[[], Awaitable[str]]] = [
        lambda: tools.expand_detail(asking(OTHER), one.id),
        lambda: tools.fact_feedback(asking(OTHER), one.id, "no"),
    ]
    for read in reads:
        with pytest.raises(NotFound):
            await read()


async def test_a_memory_is_read_in_full_with_the_code_that_it_is_about(tools: MemoryTools) -> None:
    cited = tools.staleness.cited("demo", [CodeCitation("cache.py", 1, 1)])
    text = "The cache is Redis. " + "It expires keys. " * 100
    one = remember(tools, text, codex="demo", evidence=cited)
    told = await tools.expand_detail(asking(), one.id)
    assert told.endswith(one.text)
    assert "about cache.py:1-1" in told


async def test_what_no_model_is_shown_is_not_read_by_its_id_either(tools: MemoryTools) -> None:
    one = remember(tools, "The cache is Redis.", state=MemoryState.PROPOSED)
    assert await tools.expand_detail(asking(), one.id) == f"{one.id} is not to be shown"
    assert await tools.recall_context(asking(), "cache") == "nothing is remembered about it"


async def test_code_that_changed_makes_what_is_recalled_suspect(
    tools: MemoryTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    cited = tools.staleness.cited("demo", [CodeCitation("cache.py", 2, 2)])
    remember(tools, "The cache listens on port 6379.", codex="demo", evidence=cited)
    monkeypatch.setitem(FILES, "cache.py", "import redis\nport = 7000\n")
    assert "may be outdated: cache.py:2-2 changed" in await tools.recall_context(asking(), "cache port")


async def test_a_fact_that_a_model_stores_is_a_proposal_that_a_person_confirms(tools: MemoryTools) -> None:
    told = await tools.fact_store(asking(), "The cache is Redis.", "cache", "engine")
    (proposal,) = tools.store.all_of(ME)
    assert (proposal.state, proposal.source, proposal.codex) == (MemoryState.PROPOSED, "model", "demo")
    assert f"lore memory confirm {proposal.id}" in told
    assert tools.store.confirm(ME, proposal.id).is_shown
    assert await tools.fact_store(asking(), "The cache is Redis.", "cache", "engine") == (
        f"it is remembered already, as {proposal.id}"
    )


async def test_a_doubt_is_a_proposal_too_and_leaves_the_memory_as_it_is(tools: MemoryTools) -> None:
    one = remember(tools, "The cache is Redis.")
    await tools.fact_feedback(asking(), one.id, "cache.py imports memcached")
    (doubt,) = tools.store.all_of(ME, states=[MemoryState.PROPOSED])
    assert doubt.text == f'The memory {one.id} ("{one.micro}") is wrong: cache.py imports memcached'
    assert tools.store.get(ME, one.id) == one


async def test_nothing_of_a_private_conversation_is_proposed(tools: MemoryTools) -> None:
    one = remember(tools, "The cache is Redis.")
    assert await tools.fact_store(asking(private=True), "x is y") == PRIVATE
    assert await tools.fact_feedback(asking(private=True), one.id, "no") == PRIVATE
    assert tools.store.all_of(ME) == [one]


async def test_earlier_conversations_of_this_user_are_searched(tools: MemoryTools) -> None:
    for uid, said in ((ME, "we moved the parser to Rust"), (OTHER, "the parser is a secret")):
        session = tools.sessions.create(uid, "demo", "before")
        tools.sessions.append(session.id, [StoredTurn("user", said)])
    assert await tools.session_search(asking(), "parser") == "before, 2025-06-15, user: we moved the parser to Rust"


@pytest.mark.parametrize(
    ("scopes", "lacking"),
    [
        (set(), "tools:fact_feedback"),
        ({"tools:fact_feedback"}, "memory:read"),
        ({"tools:fact_feedback", "memory:read"}, "memory:write"),
        ({"tools:fact_feedback", "memory:read", "memory:write"}, ""),
        ({"admin"}, ""),
    ],
)
def test_a_tool_needs_its_own_scope_and_those_of_the_routes_that_give_the_same(scopes: set[str], lacking: str) -> None:
    sigil = SigilView(name="guest", uid=ME, scopes=frozenset(scopes))
    assert lacking_scope(sigil, "fact_feedback") == lacking
    assert may_use(sigil, "fact_feedback") is not bool(lacking)
