"""The laws of condensing: what the user said to the letter survives, a gist that lost it is known, verbatim texts stay."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.composing import TEMPLATE, _turn
from support.word_encoder import WordEncoder

from formatters.blocks import Role
from formatters.context import AttachmentView, StateView, TurnContext, TurnView
from formatters.registry import builtin
from formatters.template import ChatTemplate, probe
from governor.ctc import PromptLimits
from orchestrator.errors import OverBudget
from orchestrator.prompt.budget import Governed, governed, within_reach
from orchestrator.prompt.claims import exchanges_of
from orchestrator.prompt.composing import Assembler, Composer, TokenCache
from orchestrator.prompt.gist import Exchange, Survivors, exchanges, extracts, lost, survivors

PIECES = [
    "src/a.py:10",
    "parse_it()",
    "3.5",
    '"a text. of two"',
    "`code here`",
    "HttpServer",
    "must not use it.",
    "don't ask",
]
WORDS = ["what", "is", "the", "reader", "for?", "And", "then.", "\n"]
QUESTIONS = st.lists(st.sampled_from(PIECES + WORDS), min_size=1, max_size=14).map(" ".join)
SAID = st.lists(st.builds(Exchange, QUESTIONS, QUESTIONS), min_size=1, max_size=5)
VERBATIM = st.sampled_from(["never touch  main.c", "x\n\n\n====\ny  y", "line\n" * 9])
TURNS = st.lists(
    st.builds(
        lambda asked, answered, kept: (
            TurnView(
                role=Role.USER,
                text=asked,
                attachments=tuple(AttachmentView(name="verbatim", text=one, verbatim=True) for one in kept),
            ),
            TurnView(role=Role.ASSISTANT, text=answered * 5),
        ),
        QUESTIONS,
        QUESTIONS,
        st.lists(VERBATIM, max_size=1),
    ),
    max_size=8,
)


@given(SAID, st.integers(1, 40))
def test_an_extract_keeps_every_name_number_quotation_and_negation_until_it_says_that_it_does_not(
    said: list[Exchange], first: int
) -> None:
    wanted = survivors("\n".join(one.asked for one in said))
    made = list(extracts(said, first))
    assert made == list(extracts(said, first))
    for text in made:
        assert not lost(wanted, text) or "in the session alone" in text
    assert [lost(wanted, text) for text in made[:3]] == [(), (), ()]
    assert len(made[-1]) < 50


@given(QUESTIONS)
def test_a_gist_without_what_was_said_is_known(question: str) -> None:
    wanted = survivors(question)
    everything = (*wanted.texts, *(f"not {word}" for word in wanted.denied))
    assert lost(wanted, "It was about something.") == everything
    assert lost(wanted, "; ".join(everything)) == ()


@pytest.mark.parametrize(
    ("said", "texts", "denied"),
    [
        ("Where is `lex it` in src/a.py, line 10?", ("lex it", "src/a.py", "10"), ()),
        ("Threads must not be used; don't touch x_y()", ("x_y()",), ("used", "touch")),
        ("Is it well-known, e.g. as an API?", ("API",), ()),
        ("it's Bob's and 'the whole' thing", ("the whole",), ()),
        ("why?", (), ()),
    ],
)
def test_what_must_survive(said: str, texts: tuple[str, ...], denied: tuple[str, ...]) -> None:
    assert survivors(said) == Survivors(texts, denied)


def test_a_negation_survives_in_other_words_and_a_name_not_as_a_part_of_another() -> None:
    assert lost(survivors("must not use threads"), "Threads are never used.") == ()
    assert lost(survivors("must not use threads"), "Threads are used.") == ("not use",)
    assert lost(survivors("see a.py"), "see aa.py and a.pyc") == ("a.py",)


def test_what_stands_between_fences_is_no_instruction() -> None:
    turns = (TurnView(role=Role.USER, text="Why?\n```\nx_y = 1\n```\nSay."), TurnView(role=Role.ASSISTANT, text="So."))
    (said,) = exchanges(turns)
    assert said == Exchange("Why?\n\nSay.", "So.")


def within(turn: TurnContext, limits: PromptLimits) -> Governed:
    async def run() -> Governed:
        tokens, template = TokenCache(WordEncoder()), ChatTemplate(TEMPLATE)
        composer = Composer(builtin(), template, probe(template), Assembler(tokens, "root"))
        left = within_reach(turn, limits)
        return await governed(left, composer, tokens, limits, await composer.compose(left), turn.state)

    return anyio.run(run)


LIMITS = st.builds(
    PromptLimits, st.integers(60, 1_500), st.integers(500, 9_000), st.none() | st.integers(1, 4), st.integers(0, 100)
)


@given(TURNS, VERBATIM, LIMITS)
def test_verbatim_texts_survive_any_cut_that_the_budget_allows(
    turns: list[tuple[TurnView, TurnView]], mine: str, limits: PromptLimits
) -> None:
    state = StateView(
        turns=tuple(one for pair in turns for one in pair),
        attachments=(AttachmentView(name="verbatim", text=mine, verbatim=True),),
    )
    needles = [one.text for turn in (*state.turns, state) for one in turn.attachments]
    try:
        result = within(_turn(state=state), limits)
    except OverBudget:
        return
    left = result.turn.state
    assert all(needle in result.composed.text for needle in needles)
    assert [one.text for turn in (*left.turns, left) for one in turn.attachments] == needles
    assert result.composed.assembled.tokens <= limits.tokens
    assert bool(result.actions) == (left != state) == bool(result.left_out(in_session=True))


@given(TURNS, LIMITS.filter(lambda limits: limits.gist > 0))
def test_a_gist_stands_for_exactly_the_turns_that_went_and_grows_at_its_end(
    turns: list[tuple[TurnView, TurnView]], limits: PromptLimits
) -> None:
    state = StateView(turns=tuple(one for pair in turns for one in pair))
    try:
        first = within(_turn(state=state), limits).turn.state
        closed = first.closed("And what else?", *state.turns[1:2])
        again = within(_turn(state=closed), limits).turn.state
    except OverBudget:
        return
    for before, after in ((state, first), (closed, again)):
        assert after.gone + len({*exchanges_of(after)}) == before.gone + len({*exchanges_of(before)})
        new = [one for one in after.gists if one not in before.gists]
        assert [(one.first, one.last) for one in new] in ([], [(before.gone + 1, after.gone)])
        assert after.gists == (*(one for one in before.gists if one in after.gists), *new)
