"""Tools that packages bring, as the agent calls them.

A call runs in a thread of its own, of which few may run at a time: one that never ends takes nothing but its place.
What a tool raises, or gives in the place of a text, is told to the model, and once to the user; the turn goes on.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.tools import Tool

from formatters.blocks import BrokenPlugin
from formatters.context import TurnContext, Turning
from formatters.foreign import attempted
from formatters.plugins import ModelTool
from formatters.registry import Registered
from orchestrator.errors import LoreError

MOST_AT_ONCE = 4  # calls, those among them that nobody waits for any more
THREAD = "tool of a package"


class PackageTools:
    """`on_failure` is told of each tool that fails. One event loop makes all calls."""

    def __init__(self, tools: Iterable[Registered[ModelTool]], on_failure: Callable[[BrokenPlugin], None]) -> None:
        self._tools = tuple(tools)
        self._on_failure = on_failure
        self._running = 0

    @property
    def functions(self) -> tuple[Tool[TurnContext], ...]:
        return tuple(map(self._function, self._tools))

    def _function(self, one: Registered[ModelTool]) -> Tool[TurnContext]:
        async def call(ctx: RunContext[TurnContext], **arguments: Any) -> str:
            return await self._called(one, ctx.deps, arguments)

        tool = one.part
        return Tool.from_schema(call, tool.name, tool.description, dict(tool.parameters), takes_ctx=True)

    async def _called(self, one: Registered[ModelTool], turn: TurnContext, arguments: Mapping[str, Any]) -> str:
        """Raises LoreError."""
        try:
            result = await self._in_a_thread(lambda: one.part.run(Turning(turn), arguments))
            if not isinstance(result, str):
                raise TypeError(f"it gave {type(result).__name__} and no text")
        except LoreError:
            raise
        except Exception as fault:  # a plug-in is foreign code and may raise anything
            why = f"{type(fault).__name__}: {fault}"
            self._on_failure(BrokenPlugin(one.distribution, one.part.name, why))
            raise LoreError(f"{one.part.name}: {why}", "go on without it") from fault
        return result

    async def _in_a_thread(self, work: Callable[[], Any]) -> Any:
        """Of its own, that ends with the process: those of the pool are needed for files and databases."""
        if self._running >= MOST_AT_ONCE:
            raise LoreError(f"{MOST_AT_ONCE} calls of tools of packages run already", "call it later")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()

        def ended(result: Any, fault: Exception | None) -> None:
            self._running -= 1
            if not outcome.done():  # nobody waits for it any more
                outcome.set_exception(fault) if fault is not None else outcome.set_result(result)

        def run() -> None:
            result, fault = attempted(work)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(ended, result, fault)

        self._running += 1
        threading.Thread(target=run, daemon=True, name=THREAD).start()
        return await outcome
