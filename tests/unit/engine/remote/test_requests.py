"""What a server is sent for a job."""

from typing import Any

import pytest

from orchestrator.engine.calling import CallForm, ToolRules
from orchestrator.engine.messages import InferenceJob, Sampling
from orchestrator.engine.remote.replies import ServerKind
from orchestrator.engine.remote.requests import (
    MARK_TEXTS,
    SentMessage,
    parts_of,
    request_of,
    unsupported,
)

RULES = ToolRules(CallForm("<tool_call>", "<tool_call>\n", ", ", "}\n</tool_call>", close="</tool_call>"), ())


def job(**more: Any) -> InferenceJob:
    return InferenceJob(1, "floor", b"", 1, 20, **more)


@pytest.mark.parametrize("kind", ServerKind)
def test_a_prompt_goes_as_it_is_with_its_stream_and_its_usage(kind):
    request = request_of(job(stop=("END",)), [1, 2], kind, "m")
    assert request.path == "completions"
    assert request.body["prompt"] == [1, 2] and request.body["model"] == "m" and request.body["stop"] == ["END"]
    assert request.body["stream"] and request.body["stream_options"] == {"include_usage": True}
    assert request.body["temperature"] == 0 and request.body["max_tokens"] == 20


def test_messages_go_to_the_other_route():
    request = request_of(job(), (SentMessage("user", "hm"),), ServerKind.OTHER, "m")
    assert request.path == "chat/completions"
    assert request.body["messages"] == [{"role": "user", "content": "hm"}] and "prompt" not in request.body


def test_a_prompt_that_is_computed_in_advance_asks_for_one_token_which_no_server_refuses():
    assert request_of(InferenceJob(1, "floor", b"", 1, 0), [1], ServerKind.SGLANG, "m").body["max_tokens"] == 1


def test_only_fields_that_a_server_knows_are_sent():
    sampling = Sampling(0.5, top_k=7, repeat_penalty=1.1, seed=3)
    bodies = {kind: request_of(job(sampling=sampling), "a", kind, "m").body for kind in ServerKind}
    assert all(body["seed"] == 3 and body["temperature"] == 0.5 for body in bodies.values())
    assert bodies[ServerKind.VLLM]["top_k"] == 7 and bodies[ServerKind.VLLM]["repetition_penalty"] == 1.1
    assert bodies[ServerKind.LLAMA]["repeat_penalty"] == 1.1
    assert not {"top_k", "min_p", "repetition_penalty", "repeat_penalty"} & bodies[ServerKind.OTHER].keys()


def test_control_tokens_that_calls_are_written_with_stay_in_the_text():
    bodies = {kind: request_of(job(sampling=Sampling(calls=RULES)), "a", kind, "m").body for kind in ServerKind}
    assert bodies[ServerKind.LLAMA]["preserved_tokens"] == ["<tool_call>", "</tool_call>"]
    assert bodies[ServerKind.VLLM]["skip_special_tokens"] is False
    assert "skip_special_tokens" not in bodies[ServerKind.OTHER]


def test_a_prompt_is_cut_into_messages_at_the_marks_and_the_last_one_opens_the_answer():
    system, user, assistant = (MARK_TEXTS[f"\x1e{role}\x1f"] for role in ("system", "user", "assistant"))
    assert list(parts_of([system, 1, 2, user, 3, assistant])) == [("system", [1, 2]), ("user", [3])]
    assert list(parts_of([user, 3, assistant, 4, user, assistant])) == [("user", [3]), ("assistant", [4]), ("user", [])]


def test_what_is_refused_is_known_before_it_is_sent():
    assert unsupported(job(), ServerKind.OTHER) == ""
    assert "logprobs" in unsupported(job(sampling=Sampling(logprobs=0)), ServerKind.VLLM)
    assert "tool" in unsupported(
        job(sampling=Sampling(calls=ToolRules(RULES.form, (), required=True))), ServerKind.VLLM
    )
