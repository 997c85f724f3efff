"""What the daemon writes into a stream is what the command line reads out of it, whatever the text."""

import anyio
from hypothesis import given
from hypothesis import strategies as st
from support.small_reports import lore_of

from orchestrator.api.chat import Chunks, completed
from orchestrator.cli.ask import received
from orchestrator.cli.client import events
from orchestrator.service import Answered, Ask, Message, Principal, Text, Thought
from orchestrator.wire.answers import Waiting

ASK = Ask(Principal(1, 1, 1), (Message("user", "q"),))
ANSWERED = Answered("stop", lore_of(ASK), prompt_tokens=100, cached_tokens=90, completion_tokens=5)

deltas = st.lists(st.builds(Text, st.text()) | st.builds(Thought, st.text()) | st.just(Waiting("queue", 1, 2)))


async def stream_of(given_events):
    for event in given_events:
        yield event


def written(given_events, *, include_usage):
    async def collect():
        return b"".join([chunk async for chunk in Chunks("lore", include_usage).of(stream_of(given_events))])

    return anyio.run(collect)


@given(deltas, st.booleans())
def test_any_text_survives_the_way_through_the_stream(given_events, include_usage):
    raw = written([*given_events, ANSWERED], include_usage=include_usage)
    answer = received(None, events(iter(raw.splitlines(keepends=True))), None)
    assert "".join(answer.text) == "".join(event.delta for event in given_events if isinstance(event, Text))
    assert answer.lore == ANSWERED.lore.model_dump(mode="json")
    assert answer.usage["prompt_tokens_details"] == {"cached_tokens": 90}
    assert answer.finish_reason == "stop"


@given(deltas)
def test_a_completion_holds_the_same_text_as_the_stream(given_events):
    async def collect():
        return await completed("lore", stream_of([*given_events, ANSWERED]))

    message = anyio.run(collect).choices[0].message
    assert message.content == "".join(event.delta for event in given_events if isinstance(event, Text))
    thoughts = "".join(event.delta for event in given_events if isinstance(event, Thought))
    assert message.reasoning_content == thoughts
