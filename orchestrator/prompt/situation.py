"""The circumstances of a turn as its Environment block tells them: levels in words, and what the active sigil may use.

A conversation's Environment is pinned: it is written anew only when something that it states has changed, because all
behind it is then computed again. Readings are turned into levels elsewhere; no number comes in here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from formatters.context import EnvironmentView, SigilView, ToolView
from orchestrator.service import Principal

SCOPE_OF_TOOLS = "tools:"


@dataclass(frozen=True)
class Levels:
    """The governor's words; None where nothing is known, which is then not told."""

    memory: str | None = None  # calm, elevated, high, critical
    power: str | None = None  # normal, low-power, throttled
    network: str | None = None  # online, offline


@dataclass(frozen=True)
class Renewal:
    """The Environment to use; `why` says what changed since the pinned one, empty when that still holds."""

    environment: EnvironmentView
    why: str = ""


def sigil_of(principal: Principal) -> SigilView:
    return SigilView(name=principal.sigil, uid=principal.uid, scopes=principal.scopes)


def may_use(sigil: SigilView, tool: str) -> bool:
    """Whether the scopes leave this tool. Owners have `admin`, which covers all."""
    return "admin" in sigil.scopes or SCOPE_OF_TOOLS + tool in sigil.scopes


def environment_of(
    levels: Levels,
    sigil: SigilView,
    tools: Iterable[str] | None = None,
    branch: str = "",
    client_system: Iterable[str] = (),
    client_tools: Iterable[ToolView] = (),
) -> EnvironmentView:
    """What there is to tell now. `tools` are those in Identity; None when the model is not told of any."""
    return EnvironmentView(
        vram=levels.memory,
        power=levels.power,
        network=levels.network,
        branch=branch,
        available_tools=None if tools is None else tuple(sorted(tool for tool in tools if may_use(sigil, tool))),
        client_system=tuple(client_system),
        client_tools=tuple(client_tools),
    )


def renewed(pinned: EnvironmentView | None, now: EnvironmentView) -> Renewal:
    """The pinned Environment while it holds, else the new one with what changed."""
    if pinned is None:
        return Renewal(now)
    changed = [name for name in EnvironmentView.model_fields if getattr(pinned, name) != getattr(now, name)]
    if not changed:
        return Renewal(pinned)
    return Renewal(now, ", ".join(_told(name, getattr(pinned, name), getattr(now, name)) for name in changed))


def _told(name: str, before: object, after: object) -> str:
    """Levels and names are told, what a client brought along is not: it may be long, and private."""
    words = (str, type(None))
    if name in ("client_system", "client_tools") or not (isinstance(before, words) and isinstance(after, words)):
        return f"{name} changed"
    return f"{name} changed from {before or 'unknown'} to {after or 'unknown'}"
