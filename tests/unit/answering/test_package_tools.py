"""Tools of packages, called by the agent: what they give goes to the model, and what they break stops nothing."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.scripted_agent import Bench, ScriptedEngine, finished, refuse_nothing, text_of
from support.waiting import SOON

from formatters.context import SigilView, TurnContext, Turning
from formatters.plugins import ModelTool
from formatters.registry import Registered
from orchestrator.answering import agent
from orchestrator.answering.agent import MOST_CHARS, Refuse
from orchestrator.answering.codex_tools import CodexTools
from orchestrator.answering.memory_tools import MemoryTools
from orchestrator.answering.package_tools import MOST_AT_ONCE, THREAD, PackageTools
from orchestrator.errors import LoreError
from orchestrator.prompt.composing import Composer, TokenCache
from orchestrator.prompt.situation import OUR_TOOLS

pytestmark = pytest.mark.anyio
CALL = '<tool_call>{"name": "weather", "arguments": {"town": "Ulm"}}</tool_call>'
Run = Callable[[Turning, Mapping[str, Any]], Any]


class House:
    """A bench with one tool of a package, and what was told of it."""

    def __init__(self, composer: Composer, tokens: TokenCache, run: Run) -> None:
        self.told: list[str] = []
        tool = Registered(ModelTool("weather", "The weather of a town.", run), "acme")
        self.tools = PackageTools([tool], lambda failure: self.told.append(str(failure)))
        self.parts = composer, tokens

    async def said(self, turn: TurnContext, refuse: Refuse = refuse_nothing) -> tuple[str, str]:
        """What the tool gave the model, and the answer."""
        bench = Bench(*self.parts, ScriptedEngine([CALL, "It is so."]), more=self.tools.functions, refuse=refuse)
        events = await bench.events(turn)
        return finished(events).running[1].text, text_of(events)


@pytest.fixture(name="house")
def builder(composer: Composer, tokens: TokenCache) -> Callable[[Run], House]:
    return lambda run: House(composer, tokens, run)


@pytest.fixture(name="turn")
def owners_turn(a_turn: Callable[..., TurnContext]) -> TurnContext:
    return a_turn("How is it?").model_copy(
        update={"sigil": SigilView(name="owner", uid=1, scopes=frozenset({"admin"}))}
    )


async def test_a_packages_tool_is_called_with_the_turn_and_the_arguments(
    house: Callable[[Run], House], turn: TurnContext
) -> None:
    made = house(lambda ctx, arguments: f"{arguments['town']} for {ctx.deps.query}: rain")
    assert await made.said(turn) == ("Ulm for How is it?: rain", "It is so.")
    assert made.told == []


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (RuntimeError("no sky"), "RuntimeError: no sky"),
        (SystemExit(3), "RuntimeError: it raised SystemExit"),
        (None, "TypeError: it gave NoneType and no text"),
    ],
)
async def test_a_tool_that_fails_is_told_to_model_and_user_and_the_turn_goes_on(
    house: Callable[[Run], House], turn: TurnContext, result: object, why: str
) -> None:
    def run(ctx: Turning, arguments: Mapping[str, Any]) -> Any:
        if isinstance(result, BaseException):
            raise result
        return result

    made = house(run)
    assert await made.said(turn) == (f"failed: weather: {why}", "It is so.")
    assert made.told == [f"'weather' of acme: {why}"]


async def test_who_lacks_its_scope_is_refused_and_the_tool_is_not_called(
    house: Callable[[Run], House], turn: TurnContext
) -> None:
    guest = turn.model_copy(update={"sigil": SigilView(name="guest", uid=2, scopes=frozenset({"query"}))})
    made = house(lambda ctx, arguments: pytest.fail("it was called"))
    assert "lacks the scope tools:weather" in (await made.said(guest))[0]
    member = turn.model_copy(update={"sigil": SigilView(name="m", uid=3, scopes=frozenset({"tools:weather"}))})
    assert (await house(lambda ctx, arguments: "sun").said(member))[0] == "sun"


async def test_a_call_that_is_refused_is_not_carried_out_and_the_model_reads_why(
    house: Callable[[Run], House], turn: TurnContext
) -> None:
    asked = []

    async def refuse(name: str, arguments: str) -> str:
        asked.append((name, arguments))
        return "it goes against 'No weather.'"

    made = house(lambda ctx, arguments: pytest.fail("it was called"))
    assert await made.said(turn, refuse) == ("refused: it goes against 'No weather.'", "It is so.")
    assert asked == [("weather", '{"town": "Ulm"}')]


async def test_what_cannot_be_looked_up_permits_nothing(house: Callable[[Run], House], turn: TurnContext) -> None:
    async def refuse(name: str, arguments: str) -> str:
        raise LoreError("the memories are away")

    made = house(lambda ctx, arguments: pytest.fail("it was called"))
    assert (await made.said(turn, refuse))[0] == "failed: the memories are away"


async def test_a_long_result_is_cut_and_says_so(house: Callable[[Run], House], turn: TurnContext) -> None:
    given, _ = await house(lambda ctx, arguments: "x" * 9_000).said(turn)
    assert given == "x" * MOST_CHARS + "\n… cut after 8,000 of 9,000 characters"


async def test_calls_that_never_end_are_given_up_and_keep_nothing_but_their_places(
    house: Callable[[Run], House], turn: TurnContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "TOOL_S", 0.05)
    let = threading.Event()
    made = house(lambda ctx, arguments: "late" if let.wait(30) else "never")
    for _ in range(MOST_AT_ONCE):
        assert "took longer than" in (await made.said(turn))[0]
    assert f"{MOST_AT_ONCE} calls of tools of packages run already" in (await made.said(turn))[0]
    let.set()
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join(SOON)
    assert (await made.said(turn))[0] == "late"


def test_the_names_of_our_own_tools_are_taken() -> None:
    tools = (MemoryTools, CodexTools)
    theirs = {name for one in tools for name, value in vars(one).items() if asyncio.iscoroutinefunction(value)}
    assert theirs | {"search_archive"} == OUR_TOOLS
