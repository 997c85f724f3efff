"""Writes Environment: levels in words, who asks and what they may use, and what the client brought along.

A client's system message and tools stand here, behind the floor, so that no client can break another's prefix.
"""

from typing import TYPE_CHECKING

from formatters.blocks import BlockKind, Item
from formatters.context import EnvironmentView, SigilView, ToolView
from formatters.identity import tool_line
from formatters.text import section

if TYPE_CHECKING:
    from formatters.formatter import Turning


class EnvironmentWriter:
    name = "environment"
    block = BlockKind.ENVIRONMENT

    def write(self, ctx: "Turning", /) -> tuple[Item, ...]:
        around, sigil = ctx.deps.environment, ctx.deps.sigil
        return (_world(around, sigil), *_allowed(around), *_system(around), *_client_tools(around.client_tools))


def _world(around: EnvironmentView, sigil: SigilView) -> Item:
    told = {
        "GPU memory": around.vram,
        "Power": around.power,
        "Network": around.network,
        "Branch": around.branch,
        "Sigil": f"{sigil.name} ({', '.join(sorted(sigil.scopes)) or 'no scopes'})",
    }
    lines = "".join(f"{name}: {value}\n" for name, value in told.items() if value)
    return Item("1", section("Environment", lines), "environment", node="world_state")


def _allowed(around: EnvironmentView) -> tuple[Item, ...]:
    if around.available_tools is None:
        return ()
    names = ", ".join(sorted(around.available_tools)) or "none"
    return (Item("2", f"Tools that may be called now: {names}\n\n", "sigil", node="available_tools"),)


def _system(around: EnvironmentView) -> tuple[Item, ...]:
    return tuple(
        Item(
            f"3/{place:08d}", section("Instructions of the client", said), "client", node="client_system", verbatim=True
        )
        for place, said in enumerate(around.client_system)
    )


def _client_tools(tools: tuple[ToolView, ...]) -> tuple[Item, ...]:
    if not tools:
        return ()
    # In the client's order: it is the client's own prefix, and it sends the same list each time.
    lines = "".join(tool_line(tool) for tool in tools)
    return (Item("4", section("Tools of the client", lines), "client", node="client_tools"),)
