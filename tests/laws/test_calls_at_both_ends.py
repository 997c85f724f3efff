"""What a form writes is what the engine lets a model say, and what is read of it: the two ends know one form."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.call_forms import form_of
from support.vocabularies import Says, saying, vocabulary_model

from formatters.calls import CallFormat
from orchestrator.answering.client_tools import call_form
from orchestrator.answering.parsing import ParsedCall, parsed_calls
from orchestrator.engine.calling import OfferedTool, ToolRules

TEMPLATES = (
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen3-Coder",
    "GLM-4.7-Flash",
    "google-gemma-4-31B-it",
    "LFM2.5-8B-A1B",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "unsloth-mistral-Devstral-Small-2507",
    "meta-llama-Llama-3.1-8B-Instruct",
    "deepseek-ai-DeepSeek-V3.1",
    "MiniMax-M2",
)
SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "kind": {"enum": ["1", "two", None]},
        "most": {"type": ["integer", "null"]},
        "deep": {"type": "boolean"},
        "more": {"type": "array", "items": {"type": "integer"}},
    },
    "additionalProperties": False,
}
arguments = st.fixed_dictionaries(
    {},
    optional={
        "path": st.text(st.characters(codec="ascii", categories=["L", "N", "Zs"]), max_size=20),
        "kind": st.sampled_from(["1", "two", None]),
        "most": st.none() | st.integers(-999, 999),
        "deep": st.booleans(),
        "more": st.lists(st.integers(0, 9), max_size=3),
    },
)


@pytest.fixture(scope="module")
def forms(llama_sources: Path) -> Mapping[str, CallFormat]:
    return {name: form_of(llama_sources / "models" / "templates" / f"{name}.jinja") for name in TEMPLATES}


@pytest.fixture(scope="module")
def says(quoter_model: Path) -> Says:
    return saying(vocabulary_model(quoter_model))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(TEMPLATES), arguments)
def test_what_a_form_writes_may_be_said_and_is_read_as_it_was(
    says: Says, forms: Mapping[str, CallFormat], name: str, made: dict[str, Any]
) -> None:
    form = forms[name]
    assert not form.why, name
    made = {key: made[key] for key in SCHEMA["properties"] if key in made}  # type: ignore[attr-defined]  # in its order
    text = form.written([("look", json.dumps(made))])
    rules = ToolRules(call_form(form), (OfferedTool("look", json.dumps(SCHEMA)),), required=True)
    assert says(text, rules), text
    assert parsed_calls(form, text, {"look": SCHEMA}) == [ParsedCall("look", made)]
