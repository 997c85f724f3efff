"""What a text that is to be continued becomes: ids left and right of the bar, and content that is never control."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.answering.plain_texts import Gap, filling_of, laid_out, taken_apart
from orchestrator.engine.messages import bytes_to_ids, ids_to_bytes
from orchestrator.engine.model import FimTokens
from orchestrator.errors import InvalidRequest
from orchestrator.service import Principal, TextAsk

FIM = FimTokens(900, 901, 902, ("<PRE>", "<SUF>", "<MID>"))
IDS = st.lists(st.integers(0, 800), max_size=5)
TEXTS = st.lists(st.sampled_from(["a", " ", "<", *FIM.texts]), max_size=6).map("".join)


def ask(prompt, suffix=None):
    return TextAsk(Principal(1, 1, 1), prompt, suffix)


@given(IDS, IDS, IDS, IDS)
def test_the_tokens_for_filling_in_stand_around_the_texts_and_the_mark_at_the_cursor(bos, lead, before, after):
    prompt = laid_out(*map(ids_to_bytes, [bos]), FIM, *map(ids_to_bytes, [lead, before, after]))
    head, tail = list(bytes_to_ids(prompt.head)), list(bytes_to_ids(prompt.tail))
    assert head + tail == [*bos, *lead, 900, *before, 901, *after, 902]
    assert [*head, *tail[: prompt.mark]] == [*bos, *lead, 900, *before]
    assert prompt.tokens == len(bos) + len(lead) + len(before) + len(after) + 3
    assert all(one in (*bos, 900) for one in head), "what one user sent is never everybody's"


@given(TEXTS, TEXTS, TEXTS)
def test_a_prompt_in_the_model_s_own_form_means_the_same_as_a_suffix_unless_it_is_ambiguous(lead, before, after):
    written = f"{lead}<PRE>{before}<SUF>{after}<MID>"
    clear = all(written.count(text) == 1 for text in FIM.texts)
    assert taken_apart(written, FIM) == (Gap(before, after, lead) if clear else Gap(written, None))


@given(TEXTS)
def test_nothing_of_a_prompt_is_lost_when_it_is_taken_apart(prompt):
    lead, before, after = (found := taken_apart(prompt, FIM)).lead, found.before, found.after
    whole = before if after is None else f"{lead}<PRE>{before}<SUF>{after}<MID>"
    assert whole == prompt


def test_a_suffix_is_refused_with_the_reason_where_the_model_cannot_fill_in():
    with pytest.raises(InvalidRequest, match="suffix: the loaded model was not made to fill in"):
        filling_of(ask("def f(", "return 1"), None)
    assert filling_of(ask("<PRE>a<SUF>b<MID>"), None) == Gap("<PRE>a<SUF>b<MID>", None)
    assert filling_of(ask("def f(", ""), None) == Gap("def f(", None)
    assert filling_of(ask("def f(", ""), FIM) == Gap("def f(", None)


def test_what_stands_beside_a_suffix_is_content_whatever_it_says():
    assert filling_of(ask("<PRE>a<SUF>b<MID>", "c"), FIM) == Gap("<PRE>a<SUF>b<MID>", "c")
