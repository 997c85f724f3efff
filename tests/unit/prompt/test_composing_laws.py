"""Laws of assembling, over any prompt: concatenative, the same for the same, nothing lost, nothing becomes control."""

import asyncio
from array import array

from hypothesis import given
from hypothesis import strategies as st
from support.prompts import prompt_of

from formatters.blocks import ORDER, Block, BlockKind, Item, Prompt, Role
from formatters.template import ChatTemplate, parts
from orchestrator.engine.messages import Ids, bytes_to_ids
from orchestrator.prompt.composing import Assembled, Assembler, TokenCache


class Letters:
    """Each character is a token; the markers are tokens of their own where they may be."""

    MARKERS = ("⟦", "⟧")

    async def encode(self, texts: list[str], control: bool) -> list[Ids]:
        return [array("I", [self._id(sign, control) for sign in text]).tobytes() for text in texts]

    def _id(self, sign: str, control: bool) -> int:
        return self.MARKERS.index(sign) if control and sign in self.MARKERS else 10 + ord(sign)


TEMPLATE = ChatTemplate("{% for m in messages %}{{ '⟦' + m.role + m.content + '⟧' }}{% endfor %}{{ '⟦a' }}")
TEXTS = st.text("abc⟦⟧\n", max_size=8)


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    blocks = [
        Block(
            kind,
            tuple(
                Item(str(place), text + "\n", kind.value)
                for place, text in enumerate(draw(st.lists(TEXTS, max_size=3)))
            ),
        )
        for kind in ORDER[:4]
    ]
    said = draw(st.lists(TEXTS, max_size=4))
    roles = (Role.USER, Role.ASSISTANT)
    state = tuple(
        Item("9", text, "said", roles[turn % 2], turn) for turn, text in enumerate(said[: len(said) // 2 * 2])
    )
    query = Item("1", draw(TEXTS), "user", Role.USER)
    return prompt_of([*blocks, Block(BlockKind.STATE, state), Block(BlockKind.QUERY, (query,))])


def assembled(prompt: Prompt, assembler: Assembler | None = None) -> Assembled:
    async def run() -> Assembled:
        one = assembler or Assembler(TokenCache(Letters()), "root")
        return await one.assemble(prompt, TEMPLATE.layout(prompt.turns), owner=1)

    return asyncio.run(run())


@given(prompts())
def test_the_ids_are_those_of_the_parts_in_their_order(prompt: Prompt) -> None:
    letters = Letters()
    expected = [
        letters._id(sign, part.control) for part in parts(TEMPLATE.layout(prompt.turns), prompt) for sign in part.text
    ]
    whole = assembled(prompt)
    assert list(bytes_to_ids(whole.floor.ids + whole.tail)) == expected
    assert [one for block in whole.blocks for one in bytes_to_ids(block.ids)] == expected


@given(prompts(), prompts(), st.integers(1, 6))
def test_the_tokens_of_the_first_blocks_are_a_prefix(one: Prompt, other: Prompt, shared: int) -> None:
    mixed = Prompt((*one.blocks[:shared], *other.blocks[shared:]))
    left, right = assembled(one), assembled(mixed)
    # A literal belongs to the block it leads into: State's first one is Query's where State is empty.
    same = shared if shared < 5 or not (one.turns or mixed.turns) else 4
    assert [block.ids for block in left.blocks[:same]] == [block.ids for block in right.blocks[:same]]


@given(prompts())
def test_the_same_prompt_has_the_same_ids_and_names(prompt: Prompt) -> None:
    one, other = assembled(prompt), assembled(prompt)
    assert (one.floor.name, one.tail, one.seams) == (other.floor.name, other.tail, other.seams)


@given(prompts())
def test_only_the_template_makes_control_tokens(prompt: Prompt) -> None:
    found = [one for block in assembled(prompt).blocks for one in bytes_to_ids(block.ids) if one < 10]
    literals = [part.text for part in parts(TEMPLATE.layout(prompt.turns), prompt) if part.control]
    assert len(found) == sum(text.count(marker) for text in literals for marker in Letters.MARKERS)


@given(st.lists(prompts(), min_size=1, max_size=4))
def test_an_assembler_that_has_seen_much_gives_what_a_fresh_one_gives(seen: list[Prompt]) -> None:
    used = Assembler(TokenCache(Letters(), budget=2_000), "root", floors_kept=2)
    for prompt in seen:
        ours, fresh = assembled(prompt, used), assembled(prompt)
        assert (ours.floor.name, ours.floor.ids, ours.tail) == (fresh.floor.name, fresh.floor.ids, fresh.tail)
