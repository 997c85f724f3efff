"""Whole turns of the agent on the real engine: a model of random weights makes valid calls by constraint alone.

Each request to the model is bound to one call of the tools with enumerated arguments; the last one speaks freely.
"""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.composing import TEMPLATE
from support.real_engine import engine

from codex.documents import document_from
from codex.graph.symbol_index import SymbolIndex, packed_file
from codex.outline.facts import facts, to_bytes
from formatters.blocks import Role
from formatters.context import TurnContext
from formatters.registry import builtin
from formatters.template import ChatTemplate, probe
from orchestrator.answering.agent import Answerer, AnswerEvent, EngineModel, Finished
from orchestrator.answering.codex_tools import CodexTools
from orchestrator.answering.inference import InferenceEvent
from orchestrator.answering.running import job_within, within_window
from orchestrator.engine.builtin import ensure
from orchestrator.engine.calling import CallForm, OfferedTool, ToolRules
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import Admitted, AnswerDelta, InferenceJob, Sampling, Tier, ids_to_bytes
from orchestrator.errors import LoreError
from orchestrator.model.chat_model import EngineEncoder
from orchestrator.prompt.composing import ID_BYTES, Assembler, Composer, TokenCache

pytestmark = pytest.mark.anyio
CODE = {"a.py": "def main():\n    return helper()\n\n\ndef helper():\n    return 1\n", "b.py": "x = 1\n"}
FORM = CallForm(
    trigger="<tool_call>",
    begin='<tool_call>{"name": "',
    before='", "arguments": ',
    end="}</tool_call>",
)
SYMBOL = {"name": {"enum": ["main", "helper", "nobody"]}, "what": {"enum": ["definition", "callers", "callees"]}}
READ = {"path": {"enum": ["a.py", "b.py", "/etc/passwd"]}, "start": {"const": 1}, "end": {"const": 5}}


def offered(name: str, properties: dict[str, object]) -> OfferedTool:
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return OfferedTool(name, json.dumps(schema), strict=True)


OFFERED = {"symbol": offered("symbol", SYMBOL), "read_file": offered("read_file", READ)}


def tools() -> CodexTools:
    found = [facts(document) for path, text in CODE.items() if (document := document_from(path, text.encode()))]
    index = SymbolIndex({one.path: packed_file(one, to_bytes(one)) for one in found})
    return CodexTools(
        lambda codex, path: CODE.get(path),
        lambda codex: list(CODE),
        lambda codex, paths: sum(len(CODE[path]) for path in paths),
        lambda codex, what, name: index.answer(what, name),
    )


async def given(name: str, arguments: dict[str, Any]) -> str:
    """What a tool gives to a model that makes this call."""
    turn: Any = SimpleNamespace(deps=SimpleNamespace(codex=SimpleNamespace(name="demo")))
    try:
        return str(await getattr(tools(), name)(turn, **arguments))
    except LoreError as fault:
        return f"failed: {fault.message}"


@dataclass
class Loop:
    """A turn on an engine, with every job that reached it and what came of each. `bound`: the tools of each request, in
    their order; a request behind the last is free."""

    client: EngineClient
    bound: list[tuple[OfferedTool, ...]]
    jobs: list[InferenceJob] = field(default_factory=list)
    generated: list[bytes] = field(default_factory=list)
    admitted: list[Admitted] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = TokenCache(EngineEncoder(self.client))
        template = ChatTemplate(TEMPLATE)
        self.composer = Composer(builtin(), template, probe(template), Assembler(self.tokens, "root"))

    async def infer(self, job: InferenceJob) -> AsyncIterator[InferenceEvent]:
        self.jobs.append(job)
        self.generated.append(b"")
        async for message in self.client.run(job):
            if isinstance(message, AnswerDelta):
                self.generated[-1] += message.ids
            if isinstance(message, Admitted):
                self.admitted.append(message)
            yield message

    async def compose(self, turn: TurnContext) -> InferenceJob:
        composed = await within_window(turn, self.composer.compose, 4_096)
        self.client.put_floor(composed.assembled.floor.name, composed.assembled.floor.ids)
        at = len(self.jobs)
        calls = ToolRules(FORM, self.bound[at], required=True) if at < len(self.bound) else None
        job = InferenceJob(0, "", b"", turn.sigil.uid, 80 if calls else 4, Sampling(calls=calls))
        return job_within(job, composed, 4_096)

    async def said(self, turn: TurnContext) -> list[AnswerEvent]:
        look = tools()
        model = EngineModel("noise", self, self.compose, self.tokens.learn_answer)
        return [event async for event in Answerer([look.symbol, look.read_file]).answer(turn, model)]


@pytest.fixture(scope="module")
async def client(models: Path) -> AsyncIterator[EngineClient]:
    async with engine(ensure("builtin:noise-s", models)) as running:
        yield running


Turns = Callable[..., TurnContext]


def ended(events: list[AnswerEvent]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


async def test_calls_that_a_constraint_made_are_carried_out_and_the_model_goes_on(
    client: EngineClient, a_turn: Turns
) -> None:
    both = tuple(OFFERED.values())
    loop = Loop(client, [(OFFERED["symbol"],), (OFFERED["read_file"],), both])
    finished = ended(await loop.said(a_turn("Who calls the helper?")))
    assert [turn.role for turn in finished.running] == [Role.ASSISTANT, Role.TOOL] * 3 + [Role.ASSISTANT]
    texts = [turn.text for turn in finished.running]
    called = [json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>")) for text in texts[:6:2]]
    assert [call["name"] for call in called[:2]] == ["symbol", "read_file"]
    assert [texts[1], texts[3]] == [await given(call["name"], call["arguments"]) for call in called[:2]]
    assert len(loop.jobs) == 4


async def test_every_request_continues_the_ids_of_the_one_before_and_computes_only_what_is_new(
    client: EngineClient, a_turn: Turns
) -> None:
    loop = Loop(client, [(OFFERED["symbol"],), (OFFERED["read_file"],)])
    finished = ended(await loop.said(a_turn("Who calls the helper?")))
    results = [turn.text for turn in finished.running if turn.role is Role.TOOL]
    for at, result in enumerate(results):
        before, now = loop.jobs[at], loop.jobs[at + 1]
        held = before.tail + loop.generated[at]
        (ids,) = await client.encode([result])
        assert now.floor == before.floor
        assert now.tail.startswith(held)
        assert ids_to_bytes(ids) in now.tail[len(held) :]
        new = (len(now.tail) - len(held)) // ID_BYTES
        parts = loop.admitted[at + 1].reuse
        computed = sum(part.end - part.start for part in parts if part.tier is Tier.COMPUTED)
        assert 0 < computed <= new + 1  # the last generated token was never evaluated


async def test_a_path_from_outside_is_refused_to_the_model_and_the_turn_goes_on(
    client: EngineClient, a_turn: Turns
) -> None:
    outside = offered("read_file", {**READ, "path": {"const": "/etc/passwd"}})
    finished = ended(await Loop(client, [(outside,)]).said(a_turn("What?")))
    (result,) = [turn.text for turn in finished.running if turn.role is Role.TOOL]
    assert result.startswith("failed: '/etc/passwd' is no file of this codex; there are: ")
    assert finished.finish_reason in ("stop", "length")


async def test_a_sigil_without_the_scope_is_refused_at_the_call_on_the_same_prompt(
    client: EngineClient, a_turn: Turns
) -> None:
    may, may_not = Loop(client, [(OFFERED["symbol"],)]), Loop(client, [(OFFERED["symbol"],)])
    await may.said(a_turn("What?", scopes=frozenset({"query", "tools:symbol"})))
    finished = ended(await may_not.said(a_turn("What?", scopes=frozenset({"query"}))))
    (result,) = [turn.text for turn in finished.running if turn.role is Role.TOOL]
    assert result == "refused: the sigil owner lacks the scope tools:symbol"
    assert may.jobs[0].floor == may_not.jobs[0].floor
