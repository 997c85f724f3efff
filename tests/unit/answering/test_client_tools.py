"""Tools of a client: what an answer may call, and results that belong to calls."""

from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.blocks import Role
from formatters.calls import PLAIN_CALLS
from formatters.context import CallView, SigilView, StateView, ToolView, TurnView
from orchestrator.answering.client_tools import (
    answered_calls,
    cut_results,
    cuts_reported,
    last_rules,
    open_calls,
    own_rules,
    refuse_strangers,
    shares,
    tool_rules,
)
from orchestrator.engine.calling import OfferedTool
from orchestrator.errors import InvalidRequest
from orchestrator.service import Ask, Message, Principal, ToolCall, ToolChoice
from orchestrator.wire.requests import ToolFunction

LOOK, FIND = ToolFunction(name="look", strict=True), ToolFunction(name="find", parameters={"type": "object"})
OURS = (ToolView(name="search_archive"), ToolView(name="look"))
OWNER = SigilView(name="owner", uid=0, scopes=frozenset({"admin"}))
CALLED = TurnView(
    role=Role.ASSISTANT,
    text="…",
    calls=(CallView(id="a", name="look", arguments="{}"), CallView(id="b", name="find", arguments="{}")),
)


AS_IT_LIKES = ToolChoice()


def asking(*tools: ToolFunction, choice: ToolChoice = AS_IT_LIKES, parallel: bool = True) -> Ask:
    return Ask(Principal(0, 0, 1), (), tools=tools, tool_choice=choice, parallel_calls=parallel)


def names(ask: Ask, sigil: SigilView = OWNER) -> list[str]:
    rules = tool_rules(ask, PLAIN_CALLS, OURS, sigil)
    return [tool.name for tool in rules.tools] if rules else []


def test_where_nothing_may_be_called_an_answer_is_free() -> None:
    assert tool_rules(asking(), PLAIN_CALLS, (), OWNER) is None
    assert tool_rules(asking(), PLAIN_CALLS, OURS, SigilView(name="guest", uid=7)) is None


def test_without_tools_of_a_client_ours_are_bound_and_for_most_that_is_known_in_advance() -> None:
    assert names(asking()) == ["search_archive", "look"]
    assert tool_rules(asking(), PLAIN_CALLS, OURS, OWNER) == own_rules(PLAIN_CALLS, OURS)


def test_the_last_answer_of_a_turn_may_call_the_clients_tools_alone() -> None:
    for asked, left in ((asking(), []), (asking(LOOK, FIND), ["look", "find"])):
        rules = tool_rules(asked, PLAIN_CALLS, OURS, OWNER)
        assert rules is not None
        assert [tool.name for tool in last_rules(rules, asked).tools] == left


def test_ours_may_be_called_beside_the_clients_which_are_meant_on_equal_names() -> None:
    assert names(asking(LOOK, FIND)) == ["look", "find", "search_archive"]
    assert names(asking(FIND), SigilView(name="guest", uid=7)) == ["find"]


def test_a_required_call_is_of_the_clients_tools_and_a_named_one_of_that_tool() -> None:
    required = tool_rules(asking(LOOK, FIND, choice=ToolChoice("required")), PLAIN_CALLS, OURS, OWNER)
    assert required is not None
    assert required.required
    assert required.tools == (
        OfferedTool("look", '{"type": "object"}', True),
        OfferedTool("find", '{"type": "object"}'),
    )
    assert names(asking(LOOK, FIND, choice=ToolChoice("required", ("find",)))) == ["find"]


@pytest.mark.parametrize(("mode", "callable_now"), [("auto", ["look", "search_archive"]), ("required", ["look"])])
def test_of_the_clients_tools_those_alone_may_be_called_that_it_allows(
    mode: Literal["auto", "required"], callable_now: list[str]
) -> None:
    assert names(asking(LOOK, FIND, choice=ToolChoice(mode, ("look",)))) == callable_now


def test_none_leaves_ours() -> None:
    assert names(asking(LOOK, FIND, choice=ToolChoice("none"))) == ["search_archive"]


def test_calls_in_parallel_are_the_clients_wish() -> None:
    rules = [tool_rules(asking(LOOK, parallel=wish), PLAIN_CALLS, (), OWNER) for wish in (True, False)]
    assert [one.parallel for one in rules if one] == [True, False]


def result(of: str, text: str = "42") -> Message:
    return Message("tool", text, of)


def test_results_stand_in_the_order_of_the_calls() -> None:
    turns = answered_calls((CALLED,), [result("b", "two"), result("a", "one")])
    assert [(turn.text, turn.answers) for turn in turns] == [("one", "a"), ("two", "b")]


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (["a"], "the call b of find has no result"),
        (["a", "b", "b"], "the call b has two results"),
        (
            ["a", "x"],
            "the result of the call x belongs to no call of the answer before it; the answer before it made a, b",
        ),
        (["a", ""], "a result without tool_call_id belongs to no call"),
    ],
)
def test_results_of_other_calls_are_refused_by_name(results: Sequence[str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        answered_calls((CALLED,), [result(one) for one in results])


def test_a_result_anywhere_belongs_to_the_answer_before_it() -> None:
    calls = (ToolCall("a", "look", "{}"),)
    asked, called = Message("user", "Where?"), Message("assistant", "", tool_calls=calls)
    refuse_strangers([asked, called, result("a"), Message("assistant", "There."), asked, called, result("a")])
    refuse_strangers([result("a")])  # of an answer that a session has
    with pytest.raises(InvalidRequest, match="the result of the call a belongs to no call"):
        refuse_strangers([asked, called, result("a"), Message("user", "And?"), result("a")])
    with pytest.raises(InvalidRequest, match="the call a has two results"):
        refuse_strangers([asked, called, result("a"), result("a")])


def test_a_call_that_has_its_result_is_not_open() -> None:
    assert [call.id for call in open_calls((CALLED, TurnView(role=Role.TOOL, text="1", answers="a")))] == ["b"]
    assert open_calls(()) == ()


@given(st.lists(st.integers(0, 500), max_size=8), st.integers(-10, 2_000))
def test_shares_fit_and_nobody_starves_for_who_has_more(sizes: list[int], room: int) -> None:
    allowed = shares(sizes, room)
    assert sum(allowed) <= max(0, room)
    assert all(may <= size for may, size in zip(allowed, sizes, strict=True))
    if sum(sizes) <= room:
        assert allowed == sizes
    shortened = [may for may, size in zip(allowed, sizes, strict=True) if may < size]
    assert not shortened or max(allowed, default=0) <= max(shortened) + len(sizes)


def test_a_result_that_was_cut_says_so_to_the_model_and_to_the_user() -> None:
    long = TurnView(role=Role.TOOL, text="x" * 1_000, answers="a")
    (cut,) = cut_results([long], [100])
    assert cut.text == "x" * 100 + "\n… cut after 100 of 1,000 characters"
    assert list(cuts_reported(CALLED.calls, [1_000], [cut])) == [
        "the result of look was cut to 136 of 1,000 characters: the prompt has no room for more"
    ]


@given(
    st.lists(st.sampled_from(list(Role)), max_size=6), st.text(max_size=5), st.lists(st.sampled_from(Role), max_size=3)
)
def test_a_turn_that_was_closed_is_opened_as_it_was(earlier: list[Role], query: str, since: list[Role]) -> None:
    turns = tuple(TurnView(role=role, text=role) for role in earlier)
    after = tuple(TurnView(role=role, text=role) for role in since if role is not Role.USER)
    state = StateView(turns=turns, left_out=("x",))
    assert state.closed(query, *after).reopened() == (state, query, after)
    assert StateView(turns=tuple(one for one in turns if one.role is not Role.USER)).reopened() is None
