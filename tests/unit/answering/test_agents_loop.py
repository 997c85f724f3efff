"""Whole turns of the agent on the real engine: a model of random weights makes valid calls by constraint alone.

Each request to the model is bound to the tools that Identity tells of, with enumerated arguments, in the form of the
model's chat template; the last one of a turn may call nothing.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai.tools import Tool
from support.composing import TEMPLATE
from support.real_engine import engine
from support.scripted_agent import HIT, Archive, refuse_nothing

from codex.documents import document_from
from codex.graph.symbol_index import SymbolIndex, packed_file
from codex.outline.facts import facts, to_bytes
from formatters.blocks import Role
from formatters.context import StrategyView, TurnContext
from formatters.registry import builtin
from formatters.template import ChatTemplate, probe
from orchestrator.answering.agent import LAST_CALL, Answerer, AnswerEvent, EngineModel, Finished, TurnSoFar
from orchestrator.answering.answer import last_job, parser_of
from orchestrator.answering.client_tools import tool_rules
from orchestrator.answering.codex_tools import CodexTools, SearchArchive
from orchestrator.answering.inference import InferenceEvent
from orchestrator.answering.memory_tools import MemoryTools
from orchestrator.answering.parsing import parsed_calls
from orchestrator.answering.running import MOST_REQUESTS, TurnLimits, job_within, within_window
from orchestrator.answering.sessions import SessionStore, StoredTurn
from orchestrator.codices.serving_identities import identity_of
from orchestrator.engine.builtin import ensure
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import ID_BYTES, Admitted, AnswerDelta, InferenceJob, Sampling, Tier, ids_to_bytes
from orchestrator.errors import LoreError
from orchestrator.karma.records import Kind, MemoryState, NewMemory
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.model.chat_model import EngineEncoder
from orchestrator.prompt.composing import Assembler, Composer, TokenCache
from orchestrator.prompt.situation import OUR_TOOLS
from orchestrator.service import Ask, Principal, ToolChoice

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_engines")]
CODE = {"a.py": "def main():\n    return helper()\n\n\ndef helper():\n    return 1\n", "b.py": "x = 1\n"}
SYMBOL = {"name": {"enum": ["main", "helper", "nobody"]}, "what": {"enum": ["definition", "callers", "callees"]}}
READ = {"path": {"enum": ["a.py", "b.py", "/etc/passwd"]}, "start": {"const": 1}, "end": {"const": 5}}
Properties = Mapping[str, Mapping[str, object]]
BOTH: Mapping[str, Properties] = {"symbol": SYMBOL, "read_file": READ}
FAMILIES = (
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen3-Coder",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "meta-llama-Llama-3.1-8B-Instruct",
    "deepseek-ai-DeepSeek-V3.1",
)


def tools() -> CodexTools:
    found = [facts(document) for path, text in CODE.items() if (document := document_from(path, text.encode()))]
    index = SymbolIndex({one.path: packed_file(one, to_bytes(one)) for one in found})
    return CodexTools(
        lambda codex, path: CODE.get(path),
        lambda codex: list(CODE),
        lambda codex, paths: sum(len(CODE[path]) for path in paths),
        lambda codex, what, name: index.answer(what, name),
    )


async def given(name: str, arguments: Mapping[str, Any]) -> str:
    """What a tool gives to a model that makes this call."""
    turn: Any = SimpleNamespace(deps=SimpleNamespace(codex=SimpleNamespace(name="demo")))
    try:
        return str(await getattr(tools(), name)(turn, **arguments))
    except LoreError as fault:
        return f"failed: {fault.message}"


def narrowed(function: Callable[..., Any], properties: Properties) -> Tool[TurnContext]:
    """One of our tools with arguments from which a model of noise may choose."""
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return Tool.from_schema(function, function.__name__, "A tool.", schema, takes_ctx=True)


@dataclass
class Loop:
    """A turn on an engine, with every job that reached it and what came of each."""

    client: EngineClient
    template: ChatTemplate
    properties: Mapping[str, Properties] = field(default_factory=lambda: BOTH)
    limits: TurnLimits = field(default_factory=lambda: TurnLimits(10_000, 100.0))
    functions: Sequence[Callable[..., Any]] = field(default_factory=lambda: tools().functions)
    jobs: list[InferenceJob] = field(default_factory=list)
    generated: list[bytes] = field(default_factory=list)
    admitted: list[Admitted] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = TokenCache(EngineEncoder(self.client))
        self.placement = probe(self.template)
        self.composer = Composer(builtin(), self.template, self.placement, Assembler(self.tokens, "root"))
        known = {one.__name__: one for one in self.functions}
        self.answerer = Answerer([narrowed(known[name], given) for name, given in self.properties.items()])
        self.ask = Ask(Principal(0, 0, 1), (), tool_choice=ToolChoice("required"), parallel_calls=False)

    async def infer(self, job: InferenceJob) -> AsyncIterator[InferenceEvent]:
        self.jobs.append(job)
        self.generated.append(b"")
        async for message in self.client.run(job):
            if isinstance(message, AnswerDelta):
                self.generated[-1] += message.ids
            if isinstance(message, Admitted):
                self.admitted.append(message)
            yield message

    async def compose(self, turn: TurnContext, asked: TurnSoFar) -> InferenceJob:
        composed = await within_window(turn, self.composer.compose, 6_000)
        self.client.put_floor(composed.assembled.floor.name, composed.assembled.floor.ids)
        owner = turn.sigil.model_copy(
            update={"scopes": frozenset({"admin"})}
        )  # refused at the call, not by the grammar
        rules = tool_rules(self.ask, self.placement.calls, self.answerer.tools, owner)
        job = job_within(InferenceJob(0, "", b"", 1, 120, Sampling(calls=rules)), composed, 6_000)
        return replace(last_job(job, self.ask), max_tokens=4) if asked.last else job

    async def said(self, turn: TurnContext) -> list[AnswerEvent]:
        told = identity_of("keeper", "You keep the lore.", self.answerer.tools, self.placement.calls.example)
        model: Any = SimpleNamespace(placement=self.placement, opens_thought=False)
        engine_model = EngineModel(
            self,
            self.compose,
            self.tokens.learn_answer,
            lambda job: parser_of(model, job),
            self.limits,
            refuse_nothing,
        )
        turn = turn.model_copy(update={"identity": told})
        return [event async for event in self.answerer.answer(turn, engine_model)]


@pytest.fixture(scope="module")
async def client(models: Path) -> AsyncIterator[EngineClient]:
    async with engine(ensure("builtin:noise-s", models)) as running:
        yield running


Loops = Callable[..., Loop]


@pytest.fixture(params=FAMILIES)
def loop_of(request: pytest.FixtureRequest, client: EngineClient, llama_sources: Path) -> Loops:
    """A loop with the chat template of each family."""
    source = (llama_sources / "models" / "templates" / f"{request.param}.jinja").read_text(encoding="utf-8")
    return lambda **options: Loop(client, ChatTemplate(source, "<s>", "</s>"), **options)


@pytest.fixture
def loop(client: EngineClient) -> Loops:
    return lambda **options: Loop(client, ChatTemplate(TEMPLATE), **options)


Turns = Callable[..., TurnContext]


def ended(events: list[AnswerEvent]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


def results_of(finished: Finished) -> list[str]:
    return [turn.text for turn in finished.running if turn.role is Role.TOOL]


def calls_in(finished: Finished, loop: Loop) -> list[list[tuple[str, Mapping[str, Any]]]]:
    """Of each answer of the model."""
    schemas = {tool.name: tool.parameters_json_schema for tool in loop.answerer.tools}
    said = [turn.text for turn in finished.running if turn.role is Role.ASSISTANT]
    made = [parsed_calls(loop.placement.calls, text, schemas) for text in said]
    return [[(call.name, call.arguments) for call in calls] for calls in made]


async def test_calls_in_the_form_that_the_floor_shows_are_carried_out_and_the_last_answer_calls_nothing(
    loop_of: Loops, a_turn: Turns
) -> None:
    loop = loop_of(limits=TurnLimits(10_000, 0.0))
    finished = ended(await loop.said(a_turn("Who calls the helper?")))
    called, last = calls_in(finished, loop)
    assert (bool(called), last) == (True, [])
    of_results = [call for turn in finished.running if turn.role is Role.TOOL for call in turn.calls]
    assert [(one.name, json.loads(one.arguments)) for one in of_results] == called
    first = next(turn for turn in finished.running if turn.role is Role.TOOL)
    assert first.text == await given(*called[0]) + LAST_CALL
    example = loop.placement.calls.example
    told = identity_of("keeper", "x", loop.answerer.tools, example)
    composed = await loop.composer.compose(a_turn("Who?", identity=told))
    assert composed.text.count("To call a tool, ") == composed.text.count(example.rstrip("\n")) == 1
    assert example.startswith(loop.placement.calls.begin)


REMEMBERED, SAID = "The database is SQLite.", "we moved the parser to Rust"
STRATEGY = StrategyView(name="CAG", reason="all of it is in the prefix", confidence=0.9, content=9, window=99, used=9)
ID: Mapping[str, object] = {"const": "the memory's id"}
EVERY: Mapping[str, tuple[Properties, str]] = {  # arguments, and what the result holds
    "search_archive": ({"query": {"const": "main"}, "n": {"enum": [1, 2]}, "graph": {"type": "boolean"}}, HIT.text),
    "read_file": ({**READ, "path": {"const": "a.py"}}, "=== a.py:1-5 ==="),
    "symbol": ({**SYMBOL, "name": {"const": "helper"}}, "a.py"),
    "context_strategy": ({"query": {"const": "?"}, "file_paths": {"const": ["a.py"]}}, "CAG"),
    "recall_context": ({"query": {"const": "which database"}, "kind": {"enum": ["fact", ""]}}, REMEMBERED),
    "expand_detail": ({"id": ID}, REMEMBERED),
    "session_search": ({"query": {"enum": ["parser", "Rust"]}}, SAID),
    "fact_store": (
        {"text": {"enum": ["The port is 1.", "The port is 2."]}, "subject": {"const": "port"}},
        "proposed as",
    ),
    "fact_feedback": ({"id": ID, "reason": {"enum": ["It is Redis.", "It is gone."]}}, "proposed as"),
}


@pytest.fixture
def memory_tools(tmp_path: Path) -> Iterator[MemoryTools]:
    """Of a user who has said one thing and told two."""
    store, sessions = MemoryStore(tmp_path / "memories.sqlite3"), SessionStore(tmp_path / "sessions.sqlite3")
    for text in (REMEMBERED, "The garden has a pond."):
        store.add(NewMemory(1000, Kind.FACT, text))
    sessions.append(sessions.create(1000, "demo", "before").id, [StoredTurn("user", SAID)])
    yield MemoryTools(store, sessions, Staleness(store, lambda codex, path: CODE.get(path)))
    store.close()
    sessions.close()


def test_every_tool_of_the_agent_has_its_turn() -> None:
    assert EVERY.keys() == OUR_TOOLS


@pytest.mark.parametrize("name", EVERY)
async def test_every_tool_is_called_by_constraint_alone_and_its_result_stands_in_the_next_prompt(
    loop: Loops, client: EngineClient, memory_tools: MemoryTools, a_turn: Turns, name: str
) -> None:
    arguments, held = EVERY[name]
    (memory,) = [one for one in memory_tools.store.all_of(1000) if one.text == REMEMBERED]
    given = {key: {"const": memory.id} if one is ID else one for key, one in arguments.items()}
    search = SearchArchive(Archive(), TokenCache(EngineEncoder(client)))
    every = (search.search_archive, *tools().functions, *memory_tools.functions)
    one = loop(properties={name: given}, functions=every, limits=TurnLimits(10_000, 0.0))
    finished = ended(await one.said(a_turn("What?", strategy=STRATEGY)))
    (called, *_), last = calls_in(finished, one)
    (result,) = results_of(finished)
    assert ((called[0], called[1].keys()), last) == ((name, given.keys()), [])
    assert (held in result, result.endswith(LAST_CALL), "failed:" in result) == (True, True, False)
    (ids,) = await client.encode([result])
    assert ids_to_bytes(ids) in one.jobs[1].tail
    proposed = [each for each in memory_tools.store.all_of(1000) if each.state is MemoryState.PROPOSED]
    assert len(proposed) == (held == "proposed as")


async def test_a_model_that_calls_for_as_long_as_it_may_gives_an_answer_all_the_same(
    loop: Loops, a_turn: Turns
) -> None:
    one = loop()
    finished = ended(await one.said(a_turn("Who calls the helper?")))
    assert [bool(calls) for calls in calls_in(finished, one)] == [True] * (MOST_REQUESTS - 1) + [False]
    assert len(one.jobs) == MOST_REQUESTS


async def test_every_request_continues_the_ids_of_the_one_before_and_computes_only_what_is_new(
    loop: Loops, a_turn: Turns
) -> None:
    turn = loop(properties={"symbol": SYMBOL})
    finished = ended(await turn.said(a_turn("Who calls the helper?")))
    for at, result in enumerate(results_of(finished)):
        before, now = turn.jobs[at], turn.jobs[at + 1]
        held = before.tail + turn.generated[at]
        (ids,) = await turn.client.encode([result])
        assert now.floor == before.floor
        assert now.tail.startswith(held)
        assert ids_to_bytes(ids) in now.tail[len(held) :]
        new = (len(now.tail) - len(held)) // ID_BYTES
        parts = turn.admitted[at + 1].reuse
        computed = sum(part.end - part.start for part in parts if part.tier is Tier.COMPUTED)
        assert 0 < computed <= new + 1  # the last generated token was never evaluated


async def test_a_path_from_outside_is_refused_to_the_model_and_the_turn_goes_on(loop: Loops, a_turn: Turns) -> None:
    outside = {"read_file": {**READ, "path": {"const": "/etc/passwd"}}}
    one = loop(properties=outside, limits=TurnLimits(10_000, 0.0))
    finished = ended(await one.said(a_turn("What?")))
    assert results_of(finished)[0].startswith("failed: '/etc/passwd' is no file of this codex; there are: ")
    assert finished.finish_reason in ("stop", "length")


async def test_a_sigil_without_the_scope_is_refused_at_the_call_on_the_same_prompt(loop: Loops, a_turn: Turns) -> None:
    may, may_not = (loop(properties={"symbol": SYMBOL}, limits=TurnLimits(10_000, 0.0)) for _ in range(2))
    await may.said(a_turn("What?", scopes=frozenset({"query", "tools:symbol"})))
    finished = ended(await may_not.said(a_turn("What?", scopes=frozenset({"query"}))))
    assert results_of(finished)[0].startswith("refused: the sigil owner lacks the scope tools:symbol\n")
    assert may.jobs[0].floor == may_not.jobs[0].floor
