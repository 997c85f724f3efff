"""Calls of tools: what the second half of one computes, what binding takes on large vocabularies, and how long hostile
schemas hold up an answer that streams beside them.

The schemas that mean harm are those of the tests. Each is asked for as an answer's own, and as the parameters of a tool.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import llama_cpp
import numpy as np
from answers import Refused
from cases_daemon import client, load, sources
from cases_engine import Bench, stopping
from ours import Ours
from private_daemon import private_daemon
from prompts import question
from report import Row, at_most
from shaped_models import GEMMA, QWEN, shaped, vocabulary_path

from orchestrator.engine.backend import SchemaRefused
from orchestrator.engine.calling import CallForm, OfferedTool, ToolRules
from orchestrator.engine.llama import native
from orchestrator.engine.llama.grammars import Grammars
from orchestrator.engine.messages import Sampling

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
MEANING_HARM: Any = importlib.import_module("support.hostile_schemas")  # tests are no package

FORM = CallForm(
    "<tool_call>", '<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", '\n<tool_call>\n{"name": "'
)
HARMLESS = json.dumps({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
READ = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "start": {"type": "integer", "minimum": 1},
        "what": {"enum": ["definition", "callers", "outline"]},
    },
    "required": ["path", "what"],
}
RESULTS = (1, 10, 100)  # times a sentence
WRAPPING = 40  # tokens that a template may write around a result
STREAMED, BESIDE = 4_000, 40  # tokens that an answer may have, and of the one that is bound beside it
WALKS, STEPS = 20, 60


def cases() -> dict[str, Callable[[Bench], Iterator[Row]]]:
    return {
        "calls: the second half": second_half,
        "calls: large vocabularies": large_vocabularies,
        "calls: hostile schemas": hostile,
    }


def second_half(bench: Bench) -> Iterator[Row]:
    """The prompt tokens that the request with the result computes, without the result's own."""
    tool = {"type": "function", "function": {"name": "read", "parameters": READ}}
    more = list[int]()
    with private_daemon(model="builtin:noise-s", models=bench.model.parent) as daemon, client(daemon) as http:
        load(daemon, sources(daemon.folder / "codex", 1_000), "codex", "--wait")
        for times in RESULTS:
            talk: list[dict[str, Any]] = [{"role": "user", "content": f"Read {times}."}]
            made = answered(http, messages=talk, tools=[tool], tool_choice="required", max_tokens=200)
            message = made["choices"][0]["message"]
            text = "It says this and that. " * times
            results = [{"role": "tool", "tool_call_id": call["id"], "content": text} for call in message["tool_calls"]]
            second = answered(http, messages=[*talk, message, *results], tools=[tool], max_tokens=1)
            own = len(posted(http, "/tokenize", {"content": text})["tokens"]) * len(results)
            more.append(second["lore"]["prompt"]["computed"] - own)
    yield at_most(
        "a call's second half", "computed beside the result's own tokens, most", max(more), WRAPPING, "tokens"
    )


def answered(http: httpx2.Client, **body: Any) -> dict[str, Any]:
    return posted(http, "/v1/chat/completions", {"model": "lore/codex", "temperature": 0, **body})


def posted(http: httpx2.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = http.post(path, json=body)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def large_vocabularies(bench: Bench) -> Iterator[Row]:
    """Processor time of the one thread that does it. Answers are random tokens that a call of a tool may have."""
    del bench
    native.start()
    for words, shape in (("152k", QWEN), ("262k", GEMMA)):
        settings = llama_cpp.llama_model_default_params()
        settings.vocab_only = True
        model = llama_cpp.llama_model_load_from_file(str(vocabulary_path(shape.vocabulary)).encode(), settings)
        grammars, began = Grammars(llama_cpp.llama_model_get_vocab(model)), time.thread_time()
        rules = ToolRules(FORM, (OfferedTool("read", json.dumps(READ)),), required=True)
        grammars.constraint("", rules)
        name = f"binding, {words} words"
        yield Row(name, "made, with the first tool, once a model", time.thread_time() - began, unit="s")
        masks = masks_ms(grammars, rules)
        yield at_most(name, f"the mask, median of {len(masks):,}", median(masks), 0.5, "ms")
        yield Row(name, "the mask, 99 of 100", float(np.quantile(masks, 0.99)), unit="ms")


def masks_ms(grammars: Grammars, rules: ToolRules) -> list[float]:
    draw, found = np.random.default_rng(5), list[float]()
    for _ in range(WALKS):
        constraint = grammars.constraint("", rules)
        with suppress(SchemaRefused):  # the call has ended
            for _ in range(STEPS):
                began = time.thread_time()
                allowed = constraint.mask()
                found.append(1_000 * (time.thread_time() - began))
                constraint.accept(int(draw.choice(np.flatnonzero(allowed))))
    return found


def hostile(bench: Bench) -> Iterator[Row]:
    """The largest pause of an answer that streams, while another one is compiled and answered beside it: the least of two
    tries, because other work on the machine makes one, too."""
    model = shaped(replace(QWEN, layers=2, width=64), bench.model.parent)
    for way, sampling in {"an answer's schema": fitting, "a tool's parameters": calling}.items():
        with stopping(Ours(model, 8_192, threads=bench.threads)) as engine:
            gap_beside(engine, sampling(HARMLESS))
            harmless = median(gap_beside(engine, sampling(HARMLESS + " " * number)) for number in range(9))
            gaps = {
                schema: min(gap_beside(engine, sampling(schema + " " * number)) for number in range(2))
                for schema in MEANING_HARM.EVERY_HOSTILE
            }
        worst = max(gaps, key=gaps.__getitem__)
        name = f"{len(gaps)} hostile schemas as {way}, 152k words"
        yield Row(name, "largest gap of an answer beside a harmless one", 1_000 * harmless, unit="ms")
        held_up = 1_000 * (gaps[worst] - harmless)
        yield replace(at_most(name, "held up more, most", held_up, 20, "ms"), note=worst[:60])


def fitting(schema: str) -> Sampling:
    return Sampling(schema=schema)


def calling(schema: str) -> Sampling:
    tool = OfferedTool("t0", MEANING_HARM.taking(schema), strict=True)
    return Sampling(calls=ToolRules(FORM, (tool,), required=True))


def gap_beside(engine: Ours, sampling: Sampling) -> float:
    """Seconds. The answer that streams is drawn: a greedy one would be drafted, and soon over."""
    stream = engine.ask([], question(0), STREAMED, owner=1, sampling=Sampling(temperature=1.0, seed=1))
    stream.first.wait()
    other = engine.ask([], question(1), BESIDE, owner=2, sampling=sampling)
    with suppress(Refused):
        other.answer()
    marks = stream.marks if stream.outcome.done() else [*stream.marks, time.monotonic()]
    engine.cancel(stream)
    with suppress(Refused):
        stream.answer()
    return max(after - before for before, after in pairwise(marks))
