"""A ticket: its states are a table and anything else stops the test; who computes a node that several tickets wait for;
text leaves an answer as whole characters and without its stop strings, wherever tokens cut it.
"""

from array import array
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.machine import Machine, naive_answer

from orchestrator.engine.cache.tree import Node
from orchestrator.engine.messages import Cancel, Chance, Chosen, InferenceJob, Outcome, Urgency, ids_to_bytes
from orchestrator.engine.scheduler.ticket import ALLOWED, HeldLogprobs, Phase, TextStream, Ticket, in_order


def ticket(arrived: int = 1, urgency: Urgency = Urgency.INTERACTIVE, phase: Phase = Phase.WAITING) -> Ticket:
    return Ticket(InferenceJob(arrived, "f", b"", 1, 5, urgency=urgency), array("I"), 0, arrived, 0.0, phase=phase)


@pytest.mark.parametrize("now", Phase)
@pytest.mark.parametrize("then", Phase)
def test_a_ticket_changes_as_the_table_says_and_in_no_other_way(now: Phase, then: Phase) -> None:
    one = ticket(phase=now)
    if then in ALLOWED[now]:
        one.enter(then)
        assert one.phase is then
    else:
        with pytest.raises(AssertionError, match="ticket 1"):
            one.enter(then)


def test_every_ticket_can_end_at_any_time_and_only_once() -> None:
    assert all(Phase.ENDED in ALLOWED[phase] for phase in Phase if phase is not Phase.ENDED)
    assert ALLOWED[Phase.ENDED] == set()


def test_background_stands_behind_interactive_and_the_older_before_the_younger() -> None:
    line = [ticket(1, Urgency.BACKGROUND), ticket(3), ticket(2), ticket(4, Urgency.BACKGROUND)]
    assert served(*line) == [2, 3, 1, 4]


def served(*line: Ticket) -> list[int]:
    return [one.number for one in in_order({one.number: one for one in line})]


def awaited() -> tuple[Ticket, Ticket, Node]:
    """A background ticket that fills a node for a question; another question, in line behind that one, has number 3."""
    filling, asking = ticket(1, Urgency.BACKGROUND, Phase.PREFILL), ticket(2, phase=Phase.PREFILL)
    filling.tip = asking.tip = node = Node(Node(None, 0, array("I"), None), 0, array("I", [1, 2]), None, computed_by=1)
    return filling, asking, node


def test_who_fills_what_another_one_waits_for_is_served_in_that_one_s_place() -> None:
    filling, asking, _ = awaited()
    assert served(filling, asking, ticket(3)) == [1, 2, 3]


def test_the_first_of_those_who_wait_lends_its_place() -> None:
    filling, asking, node = awaited()
    others = [ticket(5, phase=Phase.PREFILL), ticket(4, Urgency.BACKGROUND, Phase.RESTORING)]
    for other in others:
        other.tip = node
    assert served(*others, filling, asking, ticket(3)) == [1, 2, 3, 5, 4]


def test_a_place_is_lent_until_the_node_stands_or_nobody_waits_for_it_or_all_begins_anew() -> None:
    filling, asking, node = awaited()
    node.computed_by = None
    assert served(filling, asking, ticket(3)) == [2, 3, 1]
    filling, asking, _ = awaited()
    asking.enter(Phase.ENDED)
    assert served(filling, asking, ticket(3)) == [2, 3, 1]
    filling, asking, _ = awaited()
    for one in (filling, asking):
        one.tip = None
        one.wait_again()
    assert served(filling, asking, ticket(3)) == [2, 3, 1]


CODE = [n % 50 for n in range(300)]
MOST = 9
TAIL = next([token] for token in range(100) if len(naive_answer([*CODE, token], MOST)) > 2)


def beside_the_background(most: int) -> Machine:
    """A question that goes on from a background ticket's prompt, asked while that is computed."""
    made = Machine()
    made.floor("code", CODE)
    made.loop.handle(InferenceJob(1, "code", ids_to_bytes(TAIL), 1, most, urgency=Urgency.BACKGROUND))
    made.round()
    made.ask(2, "code", [*TAIL, 3], MOST)
    made.finish()
    return made


@pytest.mark.parametrize("most", [0, MOST])
def test_a_question_is_answered_that_goes_on_from_what_the_background_computes(most: int) -> None:
    made = beside_the_background(most)
    assert made.answer(2) == naive_answer([*CODE, *TAIL, 3], MOST)
    (first,), (second,) = made.ends[1], made.ends[2]
    assert (first.outcome, second.outcome) == (Outcome.DONE, Outcome.DONE)
    assert first.computed + second.computed == len(CODE) + len(TAIL) + 1, "nothing is computed twice"


def test_a_background_ticket_that_wants_an_answer_gets_it_although_a_question_needs_its_last_token() -> None:
    made = beside_the_background(MOST)
    assert made.answer(1) == naive_answer([*CODE, *TAIL], MOST)


LONG = [at % 41 for at in range(900)]
OTHER = [at % 37 + 50 for at in range(1500)]


def three(most: int) -> Machine:
    """A long background prompt, a question that goes on from it, and one that shares nothing with them."""
    made = Machine(cells=16384, window=4096)
    made.floor("code", CODE)
    made.loop.handle(InferenceJob(1, "code", ids_to_bytes(LONG), 1, most, urgency=Urgency.BACKGROUND))
    made.round()
    made.ask(2, "code", [*LONG, 3], MOST)
    made.ask(3, "code", OTHER, MOST)
    return made


def until_answered(made: Machine, ticket: int) -> None:
    rounds = 0
    while not made.answer(ticket) and ticket not in made.ends:
        made.round()
        made.loop.flush()
        rounds += 1
        assert rounds < 200


@pytest.mark.parametrize("most", [0, MOST])
def test_what_a_question_waits_for_is_computed_before_younger_questions_whoever_computes_it(most: int) -> None:
    made = three(most)
    until_answered(made, 2)
    assert not made.answer(3) and 3 not in made.ends


def test_once_nobody_waits_for_it_any_more_the_background_is_behind_all_questions_again() -> None:
    made = three(MOST)
    made.round()
    made.loop.handle(Cancel(2))
    until_answered(made, 3)
    assert not made.answer(1) and 1 not in made.ends
    made.finish()
    assert made.answer(1) == naive_answer([*CODE, *LONG], MOST)


def missing(ticket: Ticket) -> int:
    assert ticket.tip is not None
    return sum(len(node.ids) - node.computed for node in ticket.tip.path())


def first_in_line(made: Machine) -> Ticket | None:
    """Of the prompts that are computed, whoever waits for whom; None while somebody comes who may go before it."""
    tickets = [ticket for ticket in made.loop._tickets.values() if ticket.phase is not Phase.ANSWERING]
    if any(ticket.phase is not Phase.PREFILL for ticket in tickets):
        return None
    return min(tickets, key=lambda one: (one.arrival[0], one.due), default=None)


class Asked(NamedTuple):
    """A prompt, what it wants, and how many rounds are made before the next one is asked."""

    family: int
    length: int
    most: int
    background: bool
    rounds: int

    @property
    def ids(self) -> list[int]:
        return (LONG, OTHER)[self.family][: self.length]


asking = st.builds(
    Asked, st.integers(0, 1), st.integers(1, 400), st.sampled_from([0, 1, 3]), st.booleans(), st.integers(0, 4)
)


@settings(max_examples=100)
@given(st.lists(asking, min_size=2, max_size=6))
def test_in_every_round_the_first_in_line_comes_nearer_to_its_answer(line: list[Asked]) -> None:
    """Prompts that go on from one another, in any order and of both classes."""
    made = Machine(cells=16384, window=4096, sequences=16)
    made.floor("code", CODE)
    for number, one in enumerate(line, start=1):
        urgency = Urgency.BACKGROUND if one.background else Urgency.INTERACTIVE
        made.loop.handle(InferenceJob(number, "code", ids_to_bytes(one.ids), 1, one.most, urgency=urgency))
        for _ in range(one.rounds):
            first = first_in_line(made)
            before = missing(first) if first is not None else 0
            made.round()
            assert first is None or first.phase is not Phase.PREFILL or missing(first) < before
    made.finish()
    for number, one in enumerate(line, start=1):
        assert made.answer(number) == naive_answer([*CODE, *one.ids], one.most)


def streamed(data: bytes, cuts: list[int], stop: tuple[str, ...] = ()) -> list[str]:
    stream = TextStream(stop)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    parts = [stream.push(data[start:end]) for start, end in pairwise(places)]
    return [*parts, stream.finish()]


cuts = st.lists(st.integers(0, 1000), max_size=12)
letters = st.text("abé🦉\n", max_size=40)
stops = st.lists(st.text("abé🦉\n", min_size=1, max_size=4), max_size=3).map(tuple)


@given(st.text(max_size=60), cuts)
def test_any_cut_gives_the_same_text(text: str, places: list[int]) -> None:
    assert "".join(streamed(text.encode(), places)) == text


@given(st.binary(max_size=60), cuts)
def test_bytes_that_are_no_text_become_the_same_replacement_characters(data: bytes, places: list[int]) -> None:
    assert "".join(streamed(data, places)) == data.decode("utf-8", "replace")


@given(letters, st.text("abé🦉\n", min_size=1, max_size=4), cuts)
def test_a_stop_string_ends_the_text_before_it_and_never_leaks(text: str, stop: str, places: list[int]) -> None:
    shown = "".join(streamed(text.encode(), places, (stop,)))
    assert shown == text.split(stop)[0]


@given(letters, stops, cuts)
def test_of_several_stop_strings_none_is_ever_shown(text: str, stop: tuple[str, ...], places: list[int]) -> None:
    shown = "".join(streamed(text.encode(), places, stop))
    assert text.startswith(shown)
    assert not any(one in shown for one in stop)


@given(letters, stops)
def test_single_bytes_stop_at_the_stop_string_that_is_complete_first(text: str, stop: tuple[str, ...]) -> None:
    data = text.encode()
    shown = "".join(streamed(data, list(range(len(data))), stop))
    firsts = [(text.index(one) + len(one), text.index(one)) for one in stop if one in text]
    first = min((end for end, _ in firsts), default=None)
    assert shown in ({text[:start] for end, start in firsts if end == first} if firsts else {text})


def test_what_cannot_become_a_stop_string_is_not_held_back() -> None:
    stream = TextStream(("</end>",))
    assert [stream.push(piece) for piece in (b"abc<", b"/x", b"</", b"end", b">more")] == ["abc", "</x", "", "", ""]
    assert stream.stopped


def test_an_empty_stop_string_is_none() -> None:
    assert "".join(streamed(b"abc", [], ("",))) == "abc"


def test_after_a_stop_nothing_more_is_shown() -> None:
    stream = TextStream(("b",))
    assert (stream.push(b"ab"), stream.push(b"cd"), stream.finish()) == ("a", "", "")


# ---- what is told of tokens ------------------------------------------------------------------------------------------


def told(data: bytes, cuts: list[int], stop: tuple[str, ...]) -> list[tuple[str, tuple[Chosen, ...]]]:
    """Text and tokens as they leave; the tokens are the pieces between the cuts."""
    stream, held, out = TextStream(stop), HeldLogprobs(), []
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for number, (start, end) in enumerate(pairwise(places)):
        held.push(Chosen(Chance(number, data[start:end], -1.0)))
        shown = stream.push(data[start:end])
        out.append((shown, held.shown(shown, all_shown=stream.all_shown)))
        if stream.stopped:
            return out
    shown = stream.finish()
    return [*out, (shown, held.shown(shown, all_shown=stream.all_shown))]


@given(st.text("abé🦉\n", max_size=40), cuts)
def test_every_token_is_told_once_in_order_and_never_before_its_text(text: str, places: list[int]) -> None:
    shown, bytes_told, last = "", b"", 1
    for piece, tokens in told(text.encode(), places, ("aé🦉",)):
        shown += piece
        bytes_told += b"".join(one.token.text for one in tokens)
        assert shown.encode().startswith(bytes_told) or bytes_told.startswith(shown.encode())
        last = max([last, *(len(one.token.text) for one in tokens)])
        assert len(bytes_told) - len(shown.encode()) < last
    if "aé🦉" not in text:
        assert bytes_told == text.encode()


@given(letters, stops, cuts)
def test_no_token_is_told_that_begins_behind_what_is_shown(text: str, stop: tuple[str, ...], places: list[int]) -> None:
    parts = told(text.encode(), places, stop)
    shown = "".join(piece for piece, _ in parts).encode()
    tokens = [one.token for _, many in parts for one in many]
    assert [one.token for one in tokens] == list(range(len(tokens)))
    begins = 0
    for one in tokens:
        assert begins < len(shown)
        begins += len(one.text)
    assert begins >= len(shown)
