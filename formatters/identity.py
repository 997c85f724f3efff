"""Writes Identity: the persona, then the tools in our own rendering.

The chat template's own list of tools is not used: in most templates it lands right of the codex. The list is a superset
that is the same for every sigil, so that permissions never change the prefix.
"""

import json
from typing import TYPE_CHECKING

from formatters.blocks import BlockKind, Item
from formatters.context import IdentityView, ToolView
from formatters.memo import Memo
from formatters.text import section

if TYPE_CHECKING:
    from formatters.formatter import Turning

CALL_OPEN = "<tool_call>"
CALL_CLOSE = "</tool_call>"
_HOW_TO_CALL = (
    "To call a tool, answer with one line and nothing behind it:\n"
    f'{CALL_OPEN}{{"name": "TOOL", "arguments": {{…}}}}{CALL_CLOSE}\n'
    "Its result comes back as the next message. Tools at hand, with the JSON schema of their arguments:\n"
)


class IdentityWriter:
    name = "identity"
    block = BlockKind.IDENTITY

    def __init__(self) -> None:
        self._items = Memo(_items)

    def write(self, ctx: "Turning", /) -> tuple[Item, ...]:
        return self._items(ctx.deps.identity)


def tool_line(tool: ToolView) -> str:
    """One line of JSON with sorted keys: the same tool gives the same bytes in every process."""
    shown = {"description": tool.description, "name": tool.name, "parameters": dict(tool.parameters_json_schema)}
    return json.dumps(shown, ensure_ascii=False, sort_keys=True) + "\n"


def _items(identity: IdentityView) -> tuple[Item, ...]:
    persona = _persona(identity)
    return (*persona, *_tools(identity.tools)) if identity.tools else persona


def _persona(identity: IdentityView) -> tuple[Item, ...]:
    if not identity.text.strip():
        return ()
    said = identity.text.strip("\n") + "\n\n"
    return (Item("1", said, identity.name, node="identity_context", pinned=True, verbatim=True),)


def _tools(tools: tuple[ToolView, ...]) -> tuple[Item, ...]:
    lines = "".join(tool_line(tool) for tool in sorted(tools, key=lambda tool: tool.name))
    return (Item("3", section("Tools", _HOW_TO_CALL + lines), "tools", node="identity_context", pinned=True),)
