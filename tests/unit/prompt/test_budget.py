"""A turn within its budget: cut in the declared order and said so, or refused with the numbers; never silently."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from formatters.blocks import Role
from formatters.context import (
    AmendmentView,
    AttachmentView,
    CallView,
    Evidence,
    GistView,
    KarmaEntry,
    KarmaView,
    StateView,
    TurnContext,
    TurnView,
)
from governor.ctc import ClaimKind, PromptLimits, limits_of
from governor.settings import ClaimSettings
from orchestrator.errors import OverBudget
from orchestrator.prompt.budget import Governed, governed, within_reach
from orchestrator.prompt.claims import STUB, claims_of, exchanges_of
from orchestrator.prompt.composing import Composed, Composer, TokenCache

pytestmark = pytest.mark.anyio
Turns = Callable[..., TurnContext]
ROOMY = PromptLimits(tokens=1_000_000, characters=10_000_000, depth=20)


def passage(path: str, size: int = 30) -> Evidence:
    return Evidence(path=path, start=1, end=size, text="".join(f"{path} {number}\n" for number in range(size)))


def asked(text: str, **came: object) -> TurnView:
    return TurnView.model_validate({"role": Role.USER, "text": text, **came})


def answered(text: str) -> TurnView:
    return TurnView(role=Role.ASSISTANT, text=text)


def tool(text: str, *calls: CallView) -> TurnView:
    return TurnView(role=Role.TOOL, text=text, calls=calls)


LONG = StateView(
    turns=(
        asked(
            "first question" + " and another" * 20,
            evidence=(passage("old.py"),),
            amendments=(AmendmentView(number=1, path="a.py", text="new"),),
        ),
        answered("first answer"),
        asked("second question", attachments=(AttachmentView(name="log.txt", text="a log\n"),)),
        answered("calling"),
        tool("".join(f"line {number} of a long result\n" for number in range(20))),
        answered("second answer"),
        asked("third question"),
        answered("third answer"),
    ),
    evidence=(passage("best.py"), passage("worst.py")),
)
KARMA = KarmaView(
    entries=(
        KarmaEntry(heading="Active Constraints", text="never do"),
        KarmaEntry(heading="Known Information", text="x is 1"),
    )
)


@pytest.fixture
def turn(a_turn: Turns) -> TurnContext:
    return a_turn("And now?", state=LONG, karma=KARMA)


@pytest.fixture
async def composed(composer: Composer, turn: TurnContext) -> Composed:
    return await composer.compose(turn)


@pytest.fixture(name="govern")
def governing(composer: Composer, tokens: TokenCache) -> Callable[..., object]:
    async def govern(turn: TurnContext, **limits: int) -> Governed:
        return await governed(turn, composer, tokens, replace(ROOMY, **limits), await composer.compose(turn))

    return govern


async def test_the_claims_are_all_of_the_prompt(composed: Composed, turn: TurnContext, tokens: TokenCache) -> None:
    entries = await claims_of(turn, composed, tokens)
    assert sum(entry.claim.tokens for entry in entries) == composed.assembled.tokens
    assert sum(entry.claim.characters for entry in entries) == len(composed.text)


async def test_every_item_claims_as_what_it_is(composed: Composed, turn: TurnContext, tokens: TokenCache) -> None:
    kinds = {entry.claim.id: entry.claim.kind for entry in await claims_of(turn, composed, tokens)}
    assert kinds == {
        "identity and codex": ClaimKind.FLOOR,
        "chat template": ClaimKind.INSTRUCTION,
        "environment": ClaimKind.INSTRUCTION,
        "karma": ClaimKind.INSTRUCTION,
        "a.py": ClaimKind.INSTRUCTION,
        "turn 1": ClaimKind.TURN,
        "old.py:1-30 of turn 1": ClaimKind.SUPERSEDED,
        "log.txt": ClaimKind.INSTRUCTION,
        "turn 2": ClaimKind.TURN,
        "tool result of turn 2": ClaimKind.SUPERSEDED,
        "turn 3": ClaimKind.TURN,
        "archive": ClaimKind.INSTRUCTION,
        "best.py:1-30": ClaimKind.EVIDENCE,
        "worst.py:1-30": ClaimKind.EVIDENCE,
        "user": ClaimKind.QUERY,
    }


def test_a_question_and_what_follows_it_are_one_exchange() -> None:
    assert exchanges_of(LONG) == [0, 0, 1, 1, 1, 1, 2, 2]
    assert exchanges_of(StateView(turns=(answered("hello"), asked("q"), answered("a")))) == [0, 1, 1]


async def test_what_fits_is_left_as_it_is(govern: Callable[..., object], turn: TurnContext) -> None:
    result = await govern(turn)
    assert result.turn is turn
    assert result.actions == ()


async def test_results_and_old_evidence_become_stubs_first(
    govern: Callable[..., object], turn: TurnContext, composed: Composed
) -> None:
    result = await govern(turn, tokens=composed.assembled.tokens - 1)
    assert result.composed.assembled.tokens < composed.assembled.tokens
    assert len(result.actions) == 1
    assert result.actions[0].endswith("(superseded tool results)")
    assert result.turn.state.turns[0].evidence[0].text == STUB
    assert "old.py:1-30" in result.composed.text


async def test_filler_goes_before_anything_else_and_only_as_much_as_is_needed(
    govern: Callable[..., object], a_turn: Turns, composer: Composer
) -> None:
    log = "connection refused\n" * 50
    state = StateView(
        turns=(asked(f"first\n{log}"), answered("so"), asked(f"second\n{log}"), answered("so")),
        attachments=(AttachmentView(name="log.txt", text=log),),
        evidence=(passage("best.py"),),
    )
    turn = a_turn(log, state=state)
    whole = (await composer.compose(turn)).assembled.tokens
    assert (await govern(turn, tokens=whole)).turn is turn
    for missing, told in ((1, [False, False, True]), (300, [False, True, True])):
        result = await govern(turn, tokens=whole - missing)
        texts = [
            result.turn.state.turns[0].text,
            result.turn.state.turns[2].text,
            result.turn.state.attachments[0].text,
        ]
        assert ["(the line above 49 times more)" in text for text in texts] == told
        assert result.turn.query == log
        (action,) = result.actions
        assert action.startswith("repeated and empty text left out, ")
        assert action.endswith(" tokens saved (filler)")


async def test_a_stub_says_what_was_called_how_large_it_was_and_how_it_begins(
    govern: Callable[..., object], a_turn: Turns, composer: Composer
) -> None:
    called = CallView(id="1", name="search_archive", arguments='{"query": "main"}')
    result = "\n".join(f"=== a{number}.py:1-9 ===" for number in range(40))
    turn = a_turn(
        state=StateView(turns=(asked("where?"), answered("I look."), tool(result, called), answered("there")))
    )
    whole = (await composer.compose(turn)).assembled.tokens
    (stub,) = [one.text for one in (await govern(turn, tokens=whole - 1)).turn.state.turns if one.role is Role.TOOL]
    assert stub == (
        '[search_archive {"query": "main"}: 40 lines, 749 characters, first line: === a0.py:1-9 ===; '
        "left out to save room, re-fetchable]"
    )


async def test_of_the_results_of_one_call_the_earlier_one_goes_first(
    govern: Callable[..., object], a_turn: Turns, composer: Composer
) -> None:
    def search(word: str, found: str) -> tuple[TurnView, TurnView]:
        call = CallView(id=found, name="search", arguments=f'{{"query": "{word}"}}')
        return answered("I look."), tool("".join(f"{found} in line {number}\n" for number in range(30)), call)

    searches = (*search("x", "one"), *search("y", "two"), *search("x", "three"))
    turn = a_turn(state=StateView(turns=(asked("where?"), *searches, answered("there"))))
    whole = (await composer.compose(turn)).assembled.tokens
    first = await govern(turn, tokens=whole - 1)
    assert ["re-fetchable" in one.text for one in first.turn.state.turns if one.role is Role.TOOL] == [
        True,
        False,
        False,
    ]


async def test_the_order_is_stubs_then_oldest_turns_then_evidence(
    govern: Callable[..., object], turn: TurnContext, composed: Composed
) -> None:
    fitting, reasons = composed.assembled.tokens, []
    while True:
        try:
            result = await govern(turn, tokens=fitting - 1)
        except OverBudget:
            break
        fitting = result.composed.assembled.tokens
        reasons.append([action.rpartition("(")[2].rstrip(")") for action in result.actions])
    order = ["superseded tool results", "older turns", "evidence"]
    assert list(dict.fromkeys(reason for some in reasons for reason in some)) == order
    assert reasons[-1] == ["older turns"] * 3 + ["evidence"] * 2  # a turn takes its results and its passages with it
    assert all(order.index(few[-1]) <= order.index(more[-1]) for few, more in pairwise(reasons))


def remembering(*texts: str, pinned: bool = False) -> KarmaView:
    """Memories, the best first, each with the first three of its words as its short form."""
    entries = (
        KarmaEntry(heading="Known Information", text=text, source=f"memory:{at}", short=" ".join(text.split()[:3]))
        for at, text in enumerate(texts)
    )
    return KarmaView(entries=tuple(one.model_copy(update={"pinned": pinned}) for one in entries))


MEMORIES = remembering("the cache is redis on port six", "the store is sqlite in one file", "the door is red and old")


async def test_memories_are_told_in_short_before_a_turn_goes_and_leave_after_the_turns(
    govern: Callable[..., object], turn: TurnContext, composer: Composer
) -> None:
    full = turn.model_copy(update={"karma": MEMORIES})
    fitting, reasons, last = (await composer.compose(full)).assembled.tokens, [], None
    while True:
        try:
            last = await govern(full, tokens=fitting - 1)
        except OverBudget:
            break
        fitting = last.composed.assembled.tokens
        reasons.append([action.rpartition("(")[2].rstrip(")") for action in last.actions])
    order = ["superseded tool results", "memories in short", "older turns", "memories", "evidence"]
    assert list(dict.fromkeys(reason for some in reasons for reason in some)) == order
    assert last is not None and last.turn.karma == KarmaView()
    assert "3 records of memory" in last.left_out(in_session=False)


async def test_the_last_memory_of_a_block_is_shortened_first(
    govern: Callable[..., object], a_turn: Turns, composer: Composer
) -> None:
    turn = a_turn().model_copy(update={"karma": MEMORIES})
    whole = (await composer.compose(turn)).assembled.tokens
    result = await govern(turn, tokens=whole - 1)
    assert [one.text for one in result.turn.karma.entries] == [
        "the cache is redis on port six",
        "the store is sqlite in one file",
        "the door is",
    ]
    (action,) = result.actions
    assert action.startswith("memory:2 shortened to ")


async def test_a_pinned_memory_is_never_shortened(
    govern: Callable[..., object], a_turn: Turns, composer: Composer
) -> None:
    turn = a_turn().model_copy(update={"karma": remembering("never push to main" * 99, pinned=True)})
    whole = (await composer.compose(turn)).assembled.tokens
    with pytest.raises(OverBudget, match=f"at least {whole:,} tokens and {whole - 1:,} can be held") as refused:
        await govern(turn, tokens=whole - 1)
    assert refused.value.hint.endswith(" tokens; lore memory retire 0 leaves that out")


async def test_the_lowest_rank_of_evidence_goes_first(
    govern: Callable[..., object], a_turn: Turns, composer: Composer
) -> None:
    turn = a_turn(state=StateView(evidence=LONG.evidence))
    whole = (await composer.compose(turn)).assembled.tokens
    result = await govern(turn, tokens=whole - 1)
    assert [one.path for one in result.turn.state.evidence] == ["best.py"]
    (action,) = result.actions
    assert action.startswith("worst.py:1-30 left out, ")


async def test_only_the_last_turns_stand_in_a_prompt(govern: Callable[..., object], turn: TurnContext) -> None:
    result = await govern(turn, depth=1)
    assert [one.text for one in result.turn.state.turns] == ["third question", "third answer"]
    (action,) = [action for action in result.actions if action.startswith("turns ")]
    assert action.startswith("turns 1 to 2 left out, ")
    assert action.endswith(" tokens saved (message depth)")


async def test_without_a_limit_of_depth_as_many_turns_stand_as_fit(
    composer: Composer, tokens: TokenCache, a_turn: Turns
) -> None:
    turns = [one for number in range(30) for one in (asked(f"question {number}"), answered(f"answer {number}"))]
    turn = a_turn(state=StateView(turns=tuple(turns)))
    left = within_reach(turn, PromptLimits(1_000, 10_000))
    assert (len(left.state.turns), left.state.gone) == (60, 0)
    limits = limits_of(window=100_000, reserved=0, kv_tokens=100_000, settings=ClaimSettings(gist=0))
    whole = await governed(left, composer, tokens, limits, await composer.compose(left))
    assert (len(whole.turn.state.turns), whole.actions) == (60, ())
    tight = replace(limits, tokens=whole.composed.assembled.tokens - 1)
    cut = await governed(left, composer, tokens, tight, whole.composed)
    assert [one.text for one in cut.turn.state.turns[:2]] == ["question 1", "answer 1"]
    assert cut.composed.assembled.tokens <= tight.tokens


async def test_turns_that_were_left_out_before_keep_their_numbers(
    composer: Composer, tokens: TokenCache, turn: TurnContext
) -> None:
    left = within_reach(turn, PromptLimits(1_000, 10_000, depth=2))
    whole = await composer.compose(left)
    roomy = await governed(left, composer, tokens, ROOMY, whole, turn.state)
    assert roomy.actions == ("turn 1 left out (older than what a prompt may hold)",)
    result = await governed(left, composer, tokens, replace(ROOMY, depth=1), whole, turn.state)
    assert [action.partition(" left out")[0].partition(" shortened")[0] for action in result.actions] == [
        "turn 1",
        "turn 2",
        "tool result of turn 2",
    ]


@pytest.mark.parametrize(
    ("first", "last", "actions", "left_out"),
    [
        (1, 9, ("turns 1 to 9 condensed before",), "9 turns (condensed, kept in the session)"),
        (
            3,
            9,
            ("turns 1 to 2 left out before", "turns 3 to 9 condensed before"),
            "9 turns (7 of them condensed, kept in the session)",
        ),
        (0, 0, ("turns 1 to 9 left out before",), "9 turns (kept in the session)"),
    ],
)
async def test_turns_whose_gist_is_gone_too_are_told_as_left_out(
    govern: Callable[..., object], a_turn: Turns, first: int, last: int, actions: tuple[str, ...], left_out: str
) -> None:
    gists = (GistView(first=first, last=last, text="They spoke of x."),) if first else ()
    result = await govern(a_turn(state=StateView(turns=LONG.turns[2:3], gone=9, gists=gists)))
    assert result.actions == actions
    assert result.left_out(in_session=True) == f"left out: {left_out}; lore plan shows which"


@pytest.mark.parametrize(("depth", "messages", "gone"), [(20, 8, 0), (2, 8, 1), (20, 7, 1), (20, 5, 2), (20, 1, 3)])
def test_only_turns_that_can_stand_in_a_prompt_are_written(
    turn: TurnContext, depth: int, messages: int, gone: int
) -> None:
    left = within_reach(turn, PromptLimits(messages, 10_000, depth))
    kept = [one for one, exchange in zip(LONG.turns, exchanges_of(LONG), strict=True) if exchange >= gone]
    assert left.state.gone == gone
    assert [one.text for one in left.state.turns] == [one.text for one in kept]
    carried = [one for one in (*left.state.turns, left.state) for one in one.attachments]
    assert [one.name for one in carried] == ["log.txt"]


async def test_however_much_went_a_few_sentences_tell_it(govern: Callable[..., object], a_turn: Turns) -> None:
    calls = [tool("".join(f"result {number} {line}\n" for line in range(30))) for number in range(30)]
    state = StateView(turns=(asked("first"), *calls, *(asked(f"and {number}?") for number in range(40))))
    turn = a_turn(state=state)
    first = await govern(turn, tokens=1_080, depth=1_000)
    fitting = first.composed.assembled.tokens
    turns, results = (await govern(turn, tokens=fitting - 50, depth=1_000)).actions
    assert results.startswith("30 tool results of earlier turns left out, ")
    assert turns.startswith("turns 1 to ")


async def test_news_of_the_codex_and_files_of_the_user_outlive_their_turn(
    govern: Callable[..., object], turn: TurnContext
) -> None:
    first = (await govern(turn, depth=1)).turn.state.turns[0]
    assert [one.path for one in first.amendments] == ["a.py"]
    assert [one.name for one in first.attachments] == ["log.txt"]


async def test_karma_question_and_floor_are_never_cut(
    govern: Callable[..., object], turn: TurnContext, composed: Composed
) -> None:
    fitting = composed.assembled.tokens
    while True:
        try:
            result = await govern(turn, tokens=fitting - 1)
        except OverBudget:
            break
        fitting = result.composed.assembled.tokens
        assert result.composed.assembled.floor is composed.assembled.floor
        assert "never do" in result.composed.text
        assert "x is 1" in result.composed.text
        assert "And now?" in result.composed.text


async def test_what_cannot_fit_is_refused_with_the_numbers(
    govern: Callable[..., object], turn: TurnContext, composed: Composed
) -> None:
    with pytest.raises(OverBudget) as refusal:
        await govern(turn, tokens=50)
    assert "50 can be held" in refusal.value.message
    assert "identity and codex" in refusal.value.hint


async def test_too_many_characters_are_cut_like_too_many_tokens(
    govern: Callable[..., object], turn: TurnContext, composed: Composed
) -> None:
    result = await govern(turn, characters=len(composed.text) - 200)
    assert result.actions
    assert len(result.composed.text) <= len(composed.text) - 200


@pytest.mark.parametrize("share", [0.95, 0.8, 0.6])
async def test_what_is_sent_never_exceeds_the_budget(
    govern: Callable[..., object], turn: TurnContext, composed: Composed, share: float
) -> None:
    budget = int(composed.assembled.tokens * share)
    assert (await govern(turn, tokens=budget)).composed.assembled.tokens <= budget
