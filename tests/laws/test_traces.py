"""Whatever was asked: a trace gives the exact prompt back, and the file holds the texts of its traces and no others."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.examples import few
from support.traced import check, composed, traced

from orchestrator.answering.traces import TraceStore
from orchestrator.prompt.recorded import chunks_of, difference_of, items_of

WORDS = st.text(min_size=1, max_size=40)
PROMPTS = st.builds(
    lambda query, said, code: composed(query, said[: len(said) // 2 * 2], code + "\n"),
    WORDS,
    st.lists(WORDS, max_size=6),
    WORDS,
)


@given(prompts=st.lists(PROMPTS, min_size=1, max_size=5), data=st.data())
@few(15)
def test_every_prompt_is_read_back_exactly_and_texts_go_with_their_last_trace(prompts, data):
    now = [0.0]
    with tempfile.TemporaryDirectory() as folder:
        store = TraceStore(Path(folder) / "traces.sqlite3", days=1, most=10**9, clock=lambda: now[0])
        for number, prompt in enumerate(prompts):
            store.keep(traced(f"trace{number}", prompt))
            check(store)
            kept = store.get(1000, f"trace{number}", prompt=True).prompt
            assert "".join(one.text for one in kept) == prompt.text
            now[0] += data.draw(st.sampled_from([0.0, 50_000.0, 90_000.0]))
        store.prune()
        check(store)
        young = {f"trace{number}" for number in range(len(prompts))} & {one.id for one in store.all_of(1000, 10)}
        assert all("".join(x.text for x in store.get(1000, one, prompt=True).prompt) for one in young)
        now[0] += 2 * 86_400
        store.prune()
        assert store.held == 0
        check(store)
        store.close()


def recorded(prompt):
    return [item for chunk in chunks_of(prompt) for item in items_of(chunk.body)]


@given(PROMPTS, PROMPTS)
@few(20)
def test_a_difference_tells_how_much_both_prompts_begin_with(one, other):
    found = difference_of(recorded(one), recorded(other))
    assert one.text[: found.at] == other.text[: found.at]
    if one.text != other.text:
        assert found.item is not None
        assert not all(block.same for block in found.blocks)
    same = difference_of(recorded(one), recorded(one))
    assert (same.item, all(block.same for block in same.blocks)) == (None, True)
