"""Context nodes as data: what the gate decides about. A plug-in's node is one more row."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from formatters.plugins import ContextNode

NODES: Final = (
    ContextNode("identity_context", "Identity", 300, "persona"),
    ContextNode("codex", "Codex", 0, "floor", gated=False),
    ContextNode("world_state", "Environment", 100, "levels"),
    ContextNode("available_tools", "Environment", 200, "sigil"),
    ContextNode("available_skills", "Environment", 200, "memories"),
    ContextNode("user_traits", "Environment", 200, "memories"),
    ContextNode("communication_style", "Environment", 150, "memories"),
    ContextNode("client_system", "Environment", 0, "client", gated=False),
    ContextNode("client_tools", "Environment", 0, "client", gated=False),
    ContextNode("facts", "Karma", 400, "memories"),
    ContextNode("gists", "Karma", 300, "memories"),
    ContextNode("episodic_memory", "Karma", 800, "memories"),
    ContextNode("decisions", "Karma", 400, "memories"),
    ContextNode("procedures", "Karma", 400, "memories"),
    ContextNode("censors", "Karma", 100, "memories"),
    ContextNode("active_lists", "Karma", 200, "memories"),
    ContextNode("client_context", "State", 100, "client"),
    ContextNode("identity_modulation", "State", 150, "frame"),
    ContextNode("onboarding_nudge", "State", 100, "codices"),
    ContextNode("warm_return_hint", "State", 100, "session"),
    ContextNode("attachments", "State", 0, "client", gated=False),
    ContextNode("evidence", "State", 0, "archive", gated=False),
    ContextNode("focus", "State", 300, "session"),
    ContextNode("working_memory", "State", 800, "session"),
    ContextNode("act_history", "State", 0, "turn", gated=False),
)
"""In the order of the prompt. The costs sum to what a full turn without codex, client and evidence takes on average.

Attachments, evidence and act_history are never gated: the user gave the first, the strategy decides the second, and an
agent without the third would repeat its calls.
"""


BUILTIN: Final = frozenset(node.name for node in NODES)


def catalogue(further: Iterable[ContextNode] = ()) -> Mapping[str, ContextNode]:
    """The built-in nodes and `further` ones, by name. Raises ValueError for a name that there is twice."""
    found: dict[str, ContextNode] = {}
    for node in (*NODES, *further):
        if node.name in found:
            raise ValueError(f"there are two nodes named {node.name!r}")
        found[node.name] = node
    return MappingProxyType(found)
