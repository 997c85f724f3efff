"""The law suite itself: each law finds the formatter that breaks it. And the memo, which purity rests on."""

from collections.abc import Callable, Iterable
from itertools import count

import pytest

from formatters.blocks import BlockKind, InvalidPrompt, Item, Role
from formatters.context import TurnContext
from formatters.testing import check_formatter
from formatters.writers import Memo

COUNTER = count()


class Injector:
    """An injector that says what a function makes of the context."""

    name = "offender"

    def __init__(self, block: BlockKind, inject: Callable[[TurnContext], Iterable[Item]]) -> None:
        self.block = block
        self._inject = inject

    def inject(self, ctx: object, /) -> Iterable[Item]:
        return self._inject(ctx.deps)  # type: ignore[attr-defined]


def one(text: object) -> tuple[Item, ...]:
    return (Item("1", f"{text}\n"),)


def ranked(context: TurnContext) -> Iterable[Item]:
    return [Item(str(rank), f"{found.path}:{found.start}\n") for rank, found in enumerate(context.state.evidence)]


def only_now(context: TurnContext) -> Iterable[Item]:
    return [Item("1", "About this question.\n", turn=len(context.state.turns))]


@pytest.mark.parametrize(
    ("block", "inject", "why"),
    [
        (BlockKind.KARMA, lambda context: one(next(COUNTER)), "other items for the same context"),
        (BlockKind.KARMA, lambda context: one(id(context)), "other items for an equal context"),
        (BlockKind.KARMA, lambda context: ["text"], "must give items"),
        (BlockKind.STATE, lambda context: [Item("1", "x", role=Role.USER)], "whose items have no role"),
        (BlockKind.KARMA, lambda context: one(context.query), "depends on the question"),
        (BlockKind.ENVIRONMENT, lambda context: one(len(context.state.turns)), "depends on the question"),
        (BlockKind.CODEX, lambda context: one(context.sigil.name), "depends on who asks"),
        (BlockKind.IDENTITY, lambda context: one(context.environment.vram), "depends on who asks"),
        (BlockKind.STATE, ranked, "follows the rank of evidence"),
        (BlockKind.STATE, only_now, "rewrites a closed turn"),
        (BlockKind.STATE, lambda context: [Item("1", "x\n", turn=99)], "after the words of turn"),
    ],
)
def test_the_suite_finds_the_formatter_that_breaks_a_law(
    block: BlockKind, inject: Callable[[TurnContext], Iterable[Item]], why: str
) -> None:
    with pytest.raises(AssertionError, match=why):
        check_formatter(Injector(block, inject))


@pytest.mark.parametrize("items", [[Item("1", "a\n"), Item("1", "b\n")], [Item("1", "no newline")]])
def test_the_suite_finds_items_that_are_not_whole(items: list[Item]) -> None:
    with pytest.raises(InvalidPrompt):
        check_formatter(Injector(BlockKind.KARMA, lambda context: items))


def test_a_formatter_that_keeps_the_laws_passes() -> None:
    check_formatter(Injector(BlockKind.ENVIRONMENT, lambda context: one(context.environment.power or "")))


def test_a_memo_keeps_the_last_few_and_forgets_the_oldest() -> None:
    written: list[object] = []
    memo = Memo(lambda source: written.append(source) or len(written))
    sources = [object() for _ in range(9)]
    assert [memo(source) for source in sources] == list(range(1, 10))
    assert [memo(source) for source in sources[1:]] == list(range(2, 10))
    assert memo(sources[0]) == 10


def test_a_memo_goes_by_identity_and_not_by_equality() -> None:
    memo = Memo(lambda source: list(source))
    one, equal = (1,), tuple(range(1, 2))
    assert memo(one) is memo(one)
    assert memo(equal) is not memo(one)
