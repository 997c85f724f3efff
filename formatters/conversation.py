"""Which slot of the prompt is in which chat message, before a template is applied.

    system      Identity · Codex · Environment · Karma
    user        turn 0
    assistant   turn 1                       …
    user        artifacts of the question · Query
    assistant   a tool call, user its result …            (only while a turn is running)

Chat templates expect user and assistant by turns, beginning with the user, and many refuse anything else. Tool results are
the user's, because templates do not agree on a role for them. Knows roles and slots, not texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from formatters.blocks import ORDER, BlockKind, Role
from formatters.errors import InvalidPrompt

SEAM = "\n\n"
"""Between two turns that nothing of the template separates, so that no words merge."""

_BEGAN_EARLIER = "(The conversation began earlier.)" + SEAM


class Way(StrEnum):
    """Where Identity to Karma go."""

    SYSTEM = "system"
    FIRST_USER = "first_user"
    NONE = "none"


@dataclass(frozen=True)
class Slot:
    """A place to fill: the whole of a block, or its items of turn `index` in State and Query."""

    block: BlockKind
    index: int = 0


@dataclass(frozen=True)
class MessageLayout:
    """One chat message as slots and fixed text. `role` is system, user or assistant."""

    role: str
    parts: tuple[Slot | str, ...]


_HEAD: tuple[Slot, ...] = tuple(Slot(kind) for kind in ORDER[:4])


def conversation(turns: Sequence[Role], running: Sequence[Role], way: Way) -> tuple[MessageLayout, ...]:
    """The messages of a prompt with these earlier turns and what the running one has appended. Raises InvalidPrompt."""
    if running and running[-1] is Role.ASSISTANT:
        raise InvalidPrompt("a running turn waits for an answer: it cannot end with the assistant's own words")
    messages = _opened(turns, way)
    for index, role in enumerate(turns):
        _say(messages, side(role), Slot(BlockKind.STATE, index))
    _say(messages, "user", Slot(BlockKind.STATE, len(turns)), Slot(BlockKind.QUERY))
    for index, role in enumerate(running, start=1):
        _say(messages, side(role), Slot(BlockKind.QUERY, index))
    return tuple(MessageLayout(role, tuple(parts)) for role, parts in messages)


def side(role: Role) -> str:
    return "assistant" if role is Role.ASSISTANT else "user"


def speaker(slot: Slot, turns: Sequence[Role], running: Sequence[Role]) -> Role | None:
    """The speaker of a slot; None where there is none."""
    if slot.block is BlockKind.STATE and slot.index < len(turns):
        return turns[slot.index]
    if slot.block is BlockKind.QUERY:
        return running[slot.index - 1] if slot.index else Role.USER
    return None


_Growing = list[tuple[str, list[Slot | str]]]  # roles and parts: one message may be of thousands of turns


def _opened(turns: Sequence[Role], way: Way) -> _Growing:
    begins_late = bool(turns) and turns[0] is Role.ASSISTANT
    if way is Way.FIRST_USER:
        return [("user", [*_HEAD, _BEGAN_EARLIER] if begins_late else [*_HEAD])]
    system: tuple[str, list[Slot | str]] = ("system", [*_HEAD])
    return [system, ("user", [_BEGAN_EARLIER])] if begins_late else [system]


def _say(messages: _Growing, role: str, *slots: Slot) -> None:
    last, parts = messages[-1]
    if last != role:
        messages.append((role, [*slots]))
    elif parts[-1] == _HEAD[-1]:  # items of Karma end with a newline of their own
        parts.extend(slots)
    else:
        parts.extend((SEAM, *slots))
