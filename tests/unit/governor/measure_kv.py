"""Opens contexts in llama.cpp and says what memory they took: the foreign side of the footprint's test.

A program of its own, because a model that llama.cpp does not like may abort it. Reads JSON lines from standard input,
{path, plans: [{cells, sequences, keys, values, flash_attention, small_windows}]}, and answers each with a JSON line of
[kv, state, buffers] in MiB as logged.
"""

import ctypes
import json
import re
import sys
from typing import Any

import llama_cpp

from orchestrator.engine.llama.model_files import context_parameters
from orchestrator.engine.model import EngineSpec

KINDS = ("KV", "RS", r"(?:compute|output)")
lines: list[str] = []


@llama_cpp.llama_log_callback
def keep(_level: int, text: bytes, _data: object) -> None:
    lines.append(text.decode(errors="replace"))


def measured(path: str, plans: list[dict[str, Any]]) -> list[list[float] | None]:
    """One [kv, state, buffers] a plan; None where llama.cpp refuses to open such a context."""
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    assert model, "".join(lines)
    sizes = [opened(model, plan) for plan in plans]
    llama_cpp.llama_model_free(model)
    return sizes


def opened(model: object, plan: dict[str, Any]) -> list[float] | None:
    spec = EngineSpec(
        "",
        threads=1,
        gpu_layers=0,
        kv_type_k=plan["keys"],
        kv_type_v=plan["values"],
        flash_attention=plan["flash_attention"],
        small_windows=bool(plan["small_windows"]),
    )
    heads = int(llama_cpp.llama_model_n_head(model))
    params = context_parameters(spec, plan["cells"], plan["small_windows"] or plan["sequences"], heads=heads)
    lines.clear()
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        return None
    llama_cpp.llama_free(context)
    text = "".join(lines)
    return [sum(map(float, re.findall(rf"{kind} buffer size =\s+([\d.]+) MiB", text))) for kind in KINDS]


def main() -> None:
    llama_cpp.llama_log_set(keep, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(measured(asked["path"], asked["plans"])), flush=True)  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
