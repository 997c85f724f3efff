"""What the loop sends, and when."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.messages import AnswerDelta, Completion, FromChild, Outcome, PrefillProgress, Reason
from orchestrator.engine.scheduler.outbox import FRAME_SECONDS, Outbox


def delta(ticket: int, text: str) -> AnswerDelta:
    return AnswerDelta(ticket, text, text.encode("utf-32-le"))


def end(ticket: int) -> Completion:
    return Completion(ticket, Outcome.DONE, Reason.STOP, "")


class Told:
    def __init__(self) -> None:
        self.batches: list[list[FromChild]] = []
        self.outbox = Outbox(self.batches.append)

    def put(self, message: FromChild, now: float = 0.0) -> None:
        self.outbox.put(message, now)

    def offer(self, now: float) -> int:
        """Flushes what is due; how many batches were told by now."""
        if self.outbox.due(now):
            self.outbox.flush()
        return len(self.batches)


def begun(*tickets: int) -> Told:
    """Their first tokens were told."""
    told = Told()
    for ticket in tickets:
        told.put(delta(ticket, "a"))
    told.offer(0.0)
    told.batches.clear()
    return told


def test_a_first_token_is_told_at_once() -> None:
    told = Told()
    told.put(delta(1, "a"))
    assert told.offer(0.0) == 1


def test_what_follows_waits_for_company_and_is_one_message() -> None:
    told = begun(1)
    told.put(delta(1, "b"), 1.0)
    assert told.offer(1.0 + FRAME_SECONDS / 2) == 0
    told.put(delta(1, "c"), 1.0 + FRAME_SECONDS / 2)
    assert told.offer(1.0 + 2 * FRAME_SECONDS) == 1
    assert told.batches == [[delta(1, "bc")]]


def test_a_first_token_takes_with_it_what_waited() -> None:
    told = begun(1)
    told.put(delta(1, "b"))
    told.put(delta(2, "x"))
    assert told.offer(0.0) == 1
    assert told.batches == [[delta(1, "b"), delta(2, "x")]]


def test_all_that_is_no_token_is_told_at_once() -> None:
    told = begun(1)
    told.put(PrefillProgress(2, 5, 10))
    assert told.offer(0.0) == 1
    told.put(delta(1, "b"))
    told.put(end(1))
    assert told.offer(0.0) == 2
    assert told.batches[-1] == [delta(1, "b"), end(1)]


def test_an_empty_outbox_is_never_due() -> None:
    told = begun(1)
    assert not told.outbox.due(float("inf"))
    told.outbox.flush()
    assert told.batches == []


events = st.lists(
    st.tuples(st.floats(0, 0.03), st.integers(1, 3), st.sampled_from(["a", "bc", "progress", "offer"])), max_size=60
)


@given(events)
def test_every_answer_arrives_whole_and_in_order_and_no_token_waits_longer_than_a_frame(
    happened: list[tuple[float, int, str]],
) -> None:
    told, now = Told(), 0.0
    said: dict[int, list[str]] = {}
    waiting: float | None = None
    for passed, ticket, what in happened:
        now += passed
        if what == "offer":
            before = len(told.batches)
            if told.offer(now) > before:
                waiting = None
            assert waiting is None or now - waiting <= FRAME_SECONDS
            continue
        waiting = now if waiting is None else waiting
        if what == "progress":
            told.put(PrefillProgress(ticket, 1, 2), now)
            said.setdefault(ticket, []).append("|")
        else:
            told.put(delta(ticket, what), now)
            said.setdefault(ticket, []).append(what)
    told.outbox.flush()
    heard: dict[int, list[str]] = {}
    for message in (message for batch in told.batches for message in batch):
        assert isinstance(message, AnswerDelta | PrefillProgress)
        heard.setdefault(message.ticket, []).append(message.text if isinstance(message, AnswerDelta) else "|")
    assert {ticket: "".join(parts) for ticket, parts in heard.items()} == {
        ticket: "".join(parts) for ticket, parts in said.items()
    }
