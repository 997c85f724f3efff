"""Where a prompt leaves the one before it."""

from collections.abc import Callable

import pytest

from formatters.blocks import BlockKind, Role
from formatters.context import (
    AmendmentView,
    CodexPiece,
    EnvironmentView,
    IdentityView,
    StateView,
    TurnContext,
    TurnView,
)
from orchestrator.prompt.composing import Composed, Composer, broke_at, context_of
from orchestrator.wire.lore import Break

pytestmark = pytest.mark.anyio
Turns = Callable[..., TurnContext]
CLOSED = StateView(turns=(TurnView(role=Role.USER, text="Where?"), TurnView(role=Role.ASSISTANT, text="There.")))


@pytest.fixture(name="compose")
def composing(composer: Composer) -> Callable[[TurnContext], object]:
    async def compose(turn: TurnContext) -> Composed:
        return await composer.compose(context_of(turn))

    return compose


async def test_a_conversation_that_grows_breaks_nothing(compose: Callable[..., object], a_turn: Turns) -> None:
    before, now = await compose(a_turn("Where?")), await compose(a_turn("Why?", state=CLOSED))
    assert broke_at(before, now) is None


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        (
            {"identity": IdentityView(name="keeper", text="Another.")},
            Break(block="identity", item="keeper", why="changed"),
        ),
        ({"codex": None}, Break(block="codex", item="demo", why="removed")),
        ({"environment": EnvironmentView(vram="high")}, Break(block="environment", item="environment", why="changed")),
        ({"state": StateView()}, Break(block="query", item="user", why="changed")),
    ],
)
async def test_the_first_block_that_differs_is_named(
    compose: Callable[..., object], a_turn: Turns, changed: dict[str, object], place: Break
) -> None:
    before = await compose(a_turn("Where?"))
    now = await compose(a_turn("Why?", **{"state": CLOSED, **changed}))
    assert broke_at(before, now) == place


async def test_a_changed_file_and_a_new_amendment_are_named(compose: Callable[..., object], a_turn: Turns) -> None:
    turn = a_turn()
    assert turn.codex is not None
    pieces = (turn.codex.pieces[0], CodexPiece(path="b.py", text="x = 2\n"))
    changed = turn.codex.model_copy(update={"pieces": pieces})
    amended = turn.codex.model_copy(update={"amendments": (AmendmentView(number=1, path="b.py", text="x = 2"),)})
    before = await compose(turn)
    assert broke_at(before, await compose(a_turn(codex=changed))) == Break(block="codex", item="b.py", why="changed")
    assert broke_at(before, await compose(a_turn(codex=amended))) == Break(block="codex", item="b.py", why="added")


async def test_a_reason_that_is_known_better_is_told(compose: Callable[..., object], a_turn: Turns) -> None:
    before, now = await compose(a_turn()), await compose(a_turn(environment=EnvironmentView(vram="high")))
    found = broke_at(before, now, {BlockKind.ENVIRONMENT: "vram changed from calm to high"})
    assert found is not None
    assert found.why == "vram changed from calm to high"
