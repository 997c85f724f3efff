"""Pages as vLLM, SGLang and llama-server give them."""

import pytest

from orchestrator.engine.remote.metrics import Load, load_of, pressure_of
from orchestrator.engine.remote.replies import ServerKind

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen"} 3.0
vllm:num_requests_running{engine="1",model_name="qwen"} 2.0
vllm:num_requests_waiting{engine="0",model_name="qwen"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="qwen"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="qwen"} 0.5
"""
SGLANG = """\
sglang:token_usage{model_name="qwen"} 0.52
sglang:num_running_reqs{model_name="qwen"} 8
sglang:num_queue_reqs{model_name="qwen"} 4
"""
LLAMA = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n"


@pytest.mark.parametrize(
    ("page", "kind", "load"),
    [
        (VLLM, ServerKind.VLLM, Load(5, 1, 0.5)),
        (VLLM.replace("kv_cache_usage", "gpu_cache_usage"), ServerKind.VLLM, Load(5, 1, 0.5)),
        (SGLANG, ServerKind.SGLANG, Load(8, 4, 0.52)),
        (LLAMA, ServerKind.LLAMA, Load(1, 2, None)),
        (VLLM, ServerKind.SGLANG, Load()),
        ("<html>not found</html>", ServerKind.VLLM, Load()),
        ("vllm:num_requests_running NaN\n", ServerKind.VLLM, Load(0)),
        ("vllm:num_requests_running 1.7e308\n" * 2, ServerKind.VLLM, Load(0)),
        ("", ServerKind.OTHER, Load()),
    ],
)
def test_what_a_page_says_of_the_load(page, kind, load):
    assert load_of(page, kind) == load


@pytest.mark.parametrize(
    ("loads", "pressure"),
    [
        ([], None),
        ([Load()], None),
        ([Load(4, 0)], 0.0),
        ([Load(4, 2)], 0.25),
        ([Load(4, 4)], 0.70),
        ([Load(4, 8)], 0.85),
        ([Load(4, 16)], 0.95),
        ([Load(0, 8)], 0.95),
        ([Load(4, 8), Load(4, 0), Load()], 0.70),
    ],
)
def test_pressure_is_what_waits_for_each_that_runs(loads, pressure):
    assert pressure_of(loads) == pressure
