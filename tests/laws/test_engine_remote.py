"""Laws of what a remote engine knows by itself: what is content, and what a server may have in its cache."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from support.stand_in_server import CONTROL, TEMPLATE, ids_of, text_of

from orchestrator.engine.messages import ids_to_bytes
from orchestrator.engine.remote.routing import SentPrompts
from orchestrator.engine.remote.tokens import RESERVED, ServerTokens, cut

# Spellings of control tokens of models in use, as their tokenizers list them.
SPELLED = [
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>"),
    *("<｜begin▁of▁sentence｜>", "<｜User｜>", "<|tool▁calls▁begin|>", "<|channel|>", "<|message|>", "<|return|>"),
    *("<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<unused12>", "<0x0A>"),
    *("[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "<tool_call>", "</tool_call>", "<think>", "</think>"),
]
TEXTS = st.lists(st.one_of(st.sampled_from([*SPELLED, "<", "|", ">", "a", "\n", "é", "<div>"]), st.text(max_size=5)))


@given(TEXTS)
def test_the_parts_of_a_text_are_the_text_and_none_holds_a_reserved_one(parts):
    text = "".join(parts)
    found = cut(text, ["<end_of_turn>"])
    assert "".join(found) == text
    assert not any(mark in part for part in found for mark in SPELLED)
    assert not any(RESERVED.search(part) for part in found)


@given(TEXTS)
def test_content_never_becomes_a_control_token_of_a_server_that_reads_them_in_any_text(parts):
    async def asked(text: str, control: bool) -> list[int]:
        del control  # as vLLM and SGLang do
        return ids_of(text)

    async def told(ids: list[int]) -> str:
        return text_of(ids)

    async def law() -> None:
        tokens = ServerTokens("m", asked, told, TEMPLATE)
        text = "".join(parts).encode("utf-8", "replace").decode()
        ids = await tokens.ids(text, control=False)
        assert not set(ids) & set(CONTROL.values())
        assert await tokens.text(ids) == text

    asyncio.run(law())


PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=8), max_size=6)


@given(PROMPTS, st.lists(st.integers(0, 2), max_size=8))
def test_what_a_server_may_have_is_the_longest_beginning_of_what_it_was_sent(sent, asked):
    known = SentPrompts()
    for one in sent:
        known.sent(ids_to_bytes(one))
    naive = max((same(asked, one) for one in sent), default=0)
    assert known.longest(ids_to_bytes(asked)) == naive
    known.forget()
    assert known.longest(ids_to_bytes(asked)) == 0


def same(one: list[int], other: list[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
