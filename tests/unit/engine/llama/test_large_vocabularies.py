"""Vocabularies of 151,936 and 262,144 words, as real models have: what is chosen, allowed, reported and read back."""

import inspect
import json
from collections.abc import Iterator

import numpy as np
import pytest
from support.backends import feed

from orchestrator.engine.backend import Memory
from orchestrator.engine.calling import CallForm, OfferedTool, ToolRules
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.llama.memory import LlamaMemory
from orchestrator.engine.messages import Sampling
from orchestrator.engine.model import EngineSpec

CODE = inspect.getsource(inspect)[:20_000]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "kinds": {"enum": [["file"], ["folder", "link"]]}},
    "required": ["name", "kinds"],
}


@pytest.fixture(scope="module", params=["qwen_model", "gemma_model"])
def backend(request: pytest.FixtureRequest) -> Iterator[LlamaBackend]:
    """Two threads and plain attention, as on a CPU; the second model's windows then have no ranges."""
    loaded = LlamaBackend(EngineSpec(str(request.getfixturevalue(request.param)), threads=2, gpu_layers=0))
    yield loaded
    loaded.close()


@pytest.fixture
def memory(backend: LlamaBackend) -> Iterator[LlamaMemory]:
    opened = backend.open(1024, 2)
    yield opened
    opened.close()


def test_the_likeliest_are_those_of_a_softmax_over_all_words(backend: LlamaBackend, memory: LlamaMemory) -> None:
    row = feed(memory, 0, backend.encode(["def main():"], control=False)[0])
    logits = memory.logits(row).astype(np.float64)
    exact = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    found = memory.sample(row, backend.sampler(Sampling(logprobs=20)))
    assert len(logits) == backend.tokens
    assert [token for token, _ in found.logprobs[1:]] == np.argsort(-exact, kind="stable")[:20].tolist()
    assert all(abs(value - exact[token]) < 1e-4 for token, value in found.logprobs)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_obeys_its_schema(backend: LlamaBackend, memory: LlamaMemory, temperature: float) -> None:
    sampling = Sampling(temperature=temperature, top_k=0, top_p=1.0, seed=5, schema=json.dumps(SCHEMA))
    said = json.loads(answered(backend, memory, sampling))
    assert said.keys() == {"name", "kinds"}
    assert len(said["name"]) <= 12
    assert said["kinds"] in (["file"], ["folder", "link"])


def test_a_call_begins_with_the_text_of_its_control_token(backend: LlamaBackend, memory: LlamaMemory) -> None:
    """It is one in the second vocabulary alone."""
    form = CallForm("<|tool_call>", "<|tool_call>", "{", "}<tool_call|>")
    rules = ToolRules(form, (OfferedTool("now", '{"properties": {}}'),), required=True)
    row = feed(memory, 0, backend.encode(["What time is it?"], control=False)[0])
    found = memory.sample(row, backend.sampler(Sampling(calls=rules)))
    text = found.spelled or backend.pieces([found.token])
    assert b"<|tool_call>".startswith(text)
    assert bool(found.spelled) == (backend.encode(["<|tool_call>"], control=True)[0] == [found.token])


def test_calls_that_are_not_bound_are_written_with_the_same_text(backend: LlamaBackend) -> None:
    form = CallForm("<|tool_call>", "<|tool_call>", "{", "}<tool_call|>")
    sampling = Sampling(calls=ToolRules(form, (OfferedTool("now", '{"properties": {}}'),)))
    ids = [one for each in backend.encode(["<|tool_call>", "<tool_call|>", "<|channel>"], control=True) for one in each]
    bound, unbound = backend.sampler(sampling), backend.unbound(sampling)
    texts = ([one.spelled(token) or backend.pieces([token]) for token in ids] for one in (bound, unbound))
    assert next(texts) == next(texts)


def answered(backend: LlamaBackend, memory: Memory, sampling: Sampling) -> bytes:
    sampler, ids = backend.sampler(sampling), backend.encode(["{}"], control=False)[0]
    prompt = len(ids)
    row = feed(memory, 0, ids)
    while not (sampled := memory.sample(row, sampler)).end:
        ids.append(sampled.token)
        row = feed(memory, 0, [sampled.token], len(ids) - 1)
    sampler.close()
    return backend.pieces(ids[prompt:])


def test_code_comes_back_and_pieces_join_without_a_space(backend: LlamaBackend) -> None:
    for pieces in (["one", "two"], [" one", "  two"], ["\n\tone", "two"], [CODE[:10_001], CODE[10_001:]]):
        ids = [token for found in backend.encode(pieces, control=False) for token in found]
        assert backend.pieces(ids).decode() == "".join(pieces)
