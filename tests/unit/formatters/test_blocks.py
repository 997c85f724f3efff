"""The shape of a prompt: order, clean endings, turns."""

import hashlib
import random

import pytest
from support.prompts import prompt_of

from formatters.blocks import FLOOR, ORDER, Block, BlockKind, InvalidPrompt, Item, Prompt, Role

ASKED = Block(BlockKind.QUERY, (Item("1", "Why?", role=Role.USER),))


def said(turn: int, role: Role = Role.USER, text: str = "words") -> Item:
    return Item("9", text, role=role, turn=turn)


def test_the_blocks_have_one_order_and_the_floor_is_its_first_two() -> None:
    assert [kind.value for kind in ORDER] == ["identity", "codex", "environment", "karma", "state", "query"]
    assert FLOOR == (BlockKind.IDENTITY, BlockKind.CODEX)


def test_items_stand_by_turn_and_key_whatever_order_they_came_in() -> None:
    items = [Item(key, "text\n", turn=turn) for turn in range(3) for key in ("1", "3/00000002", "3/00000010")]
    shuffled = random.Random(7).sample(items, len(items))
    assert Block(BlockKind.STATE, tuple(shuffled)).items == tuple(items)


def test_an_items_digest_is_the_sha256_of_its_text() -> None:
    assert Item("1", "naïve\n").digest == hashlib.sha256("naïve\n".encode()).hexdigest()
    assert len(Item("1", "\udc80\n").digest) == 64


def test_a_blocks_digest_changes_with_the_seams_between_its_items() -> None:
    one = Block(BlockKind.CODEX, (Item("1", "a\n"), Item("2", "b\n")))
    other = Block(BlockKind.CODEX, (Item("1", "a\nb\n"),))
    assert one.text == other.text
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("kind", "items", "why"),
    [
        (BlockKind.CODEX, (Item("1", "a\n"), Item("1", "b\n")), "have the key '1'"),
        (BlockKind.CODEX, (Item("1", "no newline"),), "must end with a newline"),
        (BlockKind.STATE, (Item("1", ""),), "must end with a newline"),
        (BlockKind.KARMA, (Item("1", "a\n", role=Role.USER),), "only State and Query"),
        (BlockKind.IDENTITY, (Item("1", "a\n", turn=1),), "only State and Query"),
        (BlockKind.QUERY, (Item("1", "a\n"),), "has no role"),
    ],
)
def test_items_that_break_a_law_are_refused_by_name(kind: BlockKind, items: tuple[Item, ...], why: str) -> None:
    with pytest.raises(InvalidPrompt, match=why):
        Block(kind, items)


def test_a_prompt_has_all_six_blocks_in_their_order() -> None:
    blocks = prompt_of([ASKED]).blocks
    assert tuple(block.kind for block in blocks) == ORDER
    for wrong in (blocks[:5], blocks[::-1], (*blocks, blocks[0]), ()):
        with pytest.raises(InvalidPrompt, match="all six blocks"):
            Prompt(wrong)


def test_a_prompt_without_a_question_is_refused() -> None:
    with pytest.raises(InvalidPrompt, match="Query is the question"):
        prompt_of([])


@pytest.mark.parametrize(
    "items",
    [
        (said(1),),
        (said(0), said(2)),
        (said(0), Item("10", "twice", role=Role.USER, turn=0)),
        (said(0), Item("1", "far\n", turn=2)),
        (said(0), Item("99", "behind the words\n", turn=0)),
    ],
)
def test_each_turn_has_one_speaker_who_has_the_last_word(items: tuple[Item, ...]) -> None:
    with pytest.raises(InvalidPrompt, match="State"):
        prompt_of([Block(BlockKind.STATE, items), ASKED])


def test_a_prompt_tells_who_spoke_and_gives_the_items_of_each_turn() -> None:
    evidence = Item("5", "found\n", turn=2)
    state = Block(BlockKind.STATE, (said(0), said(1, Role.ASSISTANT), evidence))
    since = (Item("1", "call", role=Role.ASSISTANT, turn=1), Item("1", "result", role=Role.TOOL, turn=2))
    prompt = prompt_of([state, Block(BlockKind.QUERY, ASKED.items + since)])
    assert prompt.turns == (Role.USER, Role.ASSISTANT)
    assert prompt.running == (Role.ASSISTANT, Role.TOOL)
    assert prompt.at(BlockKind.STATE, 1) == (said(1, Role.ASSISTANT),)
    assert prompt.at(BlockKind.STATE, 2) == (evidence,)
    assert prompt.at(BlockKind.QUERY, 2) == since[1:]
    assert prompt.at(BlockKind.CODEX) == ()
