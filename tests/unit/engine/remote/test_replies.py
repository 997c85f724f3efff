"""What servers answer, and what it means. Bodies as llama-server, vLLM and SGLang send them."""

import pytest

from orchestrator.engine.messages import Reason
from orchestrator.engine.remote.replies import (
    END,
    ServedModel,
    ServerFault,
    ServerKind,
    StreamEvent,
    TokenUsage,
    cached_of,
    doubts_of,
    event_of,
    fault_of,
    served_model,
)

LLAMA = {
    "data": [{"id": "qwen.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 4096, "n_ctx_train": 32768, "n_params": 5}}]
}
VLLM = {"data": [{"id": "qwen", "owned_by": "vllm", "root": "Qwen/Qwen3-8B", "max_model_len": 40960}]}
SGLANG = {"data": [{"id": "qwen", "owned_by": "sglang", "root": "qwen", "max_model_len": 32768}]}


@pytest.mark.parametrize(
    ("reply", "model"),
    [
        (LLAMA, ServedModel("qwen.gguf", ServerKind.LLAMA, 4096, 5)),
        (VLLM, ServedModel("qwen", ServerKind.VLLM, 40960)),
        (SGLANG, ServedModel("qwen", ServerKind.SGLANG, 32768)),
        ({"data": [{"id": "gpt", "owned_by": "somebody"}]}, ServedModel("gpt", ServerKind.OTHER)),
    ],
)
def test_a_server_is_known_by_how_it_lists_its_model(reply, model):
    assert served_model(reply, "") == model
    assert served_model(reply, model.id) == model


def test_adapters_of_one_model_are_one_model_and_of_others_one_must_be_named():
    adapter = {"id": "qwen-sql", "owned_by": "vllm", "root": "Qwen/Qwen3-8B", "max_model_len": 40960}
    assert served_model({"data": [*VLLM["data"], adapter]}, "").id == "qwen"

    with pytest.raises(ServerFault, match=r"serves 2 models: name one in engine.model \(qwen, qwen.gguf\)") as refused:
        served_model({"data": [*VLLM["data"], *LLAMA["data"]]}, "")
    assert refused.value.lasting


@pytest.mark.parametrize("data", [[], None, 5, {"id": "qwen"}, "qwen", [["qwen"]]])
def test_no_model_at_all_is_waited_for_and_what_to_do_is_said(data):
    with pytest.raises(ServerFault, match="lists no model at /models: load one there") as fault:
        served_model({"data": data}, "")
    assert not fault.value.lasting


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("", None),
        (": keep-alive", None),
        ("data: [DONE]", END),
        ('data: {"choices": [{"text": "a", "index": 0}], "model": "m"}', StreamEvent("a", model="m")),
        ('data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}', StreamEvent("a", finish="stop")),
        ('data: {"choices": [{"delta": {"reasoning_content": "hm"}}]}', StreamEvent(thought="hm")),
        (
            'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}',
            StreamEvent(usage=TokenUsage(9, None, 2)),
        ),
        (
            'data: {"choices": [{"text": ""}], "prompt_progress": {"total": 90, "cache": 10, "processed": 40}}',
            StreamEvent(done=40, total=90),
        ),
        (
            'data: {"choices": [{"text": "", "finish_reason": "length"}], "timings": {"cache_n": 8, "prompt_n": 1}}',
            StreamEvent(finish="length", usage=TokenUsage(None, 8, None)),
        ),
    ],
)
def test_events_of_a_stream(line, event):
    assert event_of(line) == event


@pytest.mark.parametrize(
    "line", ["data: {", "data: [1]", 'data: {"error": {"message": "no"}}', 'error: {"code": 500, "message": "no"}']
)
def test_what_is_no_event_or_an_error_ends_the_stream(line):
    with pytest.raises(ServerFault):
        event_of(line)


@pytest.mark.parametrize(
    ("usage", "cached", "doubt"),
    [
        (TokenUsage(100, 60, 5), 60, ""),
        (TokenUsage(100, 0, 5), 0, ""),
        (None, 0, "did not say how many"),
        (TokenUsage(100, None, 5), 0, "does not say what was in its cache"),
        (TokenUsage(100, 200, 5), 0, "cannot be"),
        (TokenUsage(90, 60, 5), 60, "not what was sent"),
    ],
)
def test_what_a_usage_says_of_a_prompt_of_100_tokens(usage, cached, doubt):
    assert cached_of(usage, 100) == cached
    found = doubts_of(usage, 100, ServerKind.VLLM)
    assert doubt in found and bool(found) == bool(doubt)


def test_the_tip_for_a_missing_usage_is_that_servers_own():
    assert "--enable-cache-report" in doubts_of(TokenUsage(100, None, 5), 100, ServerKind.SGLANG)
    assert "--" not in doubts_of(TokenUsage(100, None, 5), 100, ServerKind.OTHER)


@pytest.mark.parametrize(
    ("status", "body", "reason", "lasting", "elsewhere"),
    [
        (401, {"error": "Unauthorized"}, Reason.ENGINE, True, True),
        (404, {"error": {"message": "The model `x` does not exist."}}, Reason.ENGINE, True, True),
        (429, "slow down", Reason.BUSY, False, True),
        (503, {"error": {"code": 503, "message": "Loading model"}}, Reason.BUSY, False, True),
        (200, {"code": 503, "message": "Loading model"}, Reason.BUSY, False, True),
        (500, {}, Reason.ENGINE, False, True),
        (400, {"error": {"type": "exceed_context_size_error", "message": "too long"}}, Reason.WINDOW, False, False),
        (400, {"message": "This model's maximum context length is 9 tokens."}, Reason.WINDOW, False, False),
        (400, {"detail": "no"}, Reason.SAMPLING, False, False),
    ],
)
def test_each_status_has_a_meaning(status, body, reason, lasting, elsewhere):
    found = fault_of(status, body)
    assert (found.reason, found.lasting, found.elsewhere) == (reason, lasting, elsewhere)


def test_what_a_server_says_is_shortened():
    assert len(str(fault_of(500, {"error": {"message": "x" * 10_000}}))) < 400


def test_what_a_server_says_drives_no_terminal():
    red = "\x1b[31m"
    assert str(fault_of(500, {"error": {"message": f"{red}no\x9b2J \u202eon"}})) == "failed (500): �[31mno�2J �on"
    assert "\x1b" not in str(fault_of(429, "slow", f"7{red}"))
    assert served_model({"data": [{"id": f"qwen{red}\ud800"}]}, "").id == "qwen�[31m�"
    event = event_of('data: {"choices": [], "model": "\\u001b]0;title"}')
    assert event is not None and event.model == "�]0;title"


def test_what_cannot_be_counted_is_not_told():
    row = {"id": "qwen", "max_model_len": 10**30, "meta": {"n_params": -1}}
    assert served_model({"data": [row]}, "") == ServedModel("qwen", ServerKind.OTHER)
