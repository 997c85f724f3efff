"""Numbers of a request that no engine can hold are refused at the door, with the field's name."""

import json

import pytest
from pydantic import ValidationError

from orchestrator.engine.scheduler.admission import RANGES
from orchestrator.wire.requests import ChatRequest

ASKED = {"messages": [{"role": "user", "content": "why?"}]}


def read(body: dict[str, object]) -> ChatRequest:
    return ChatRequest.model_validate_json(json.dumps(body))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 2**31),
        ("max_completion_tokens", 10**400),
        ("top_k", 2**31),
        ("top_k", 10**400),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("seed", 10**400),
    ],
)
def test_a_number_too_large_is_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(ValidationError, match=name):
        read({**ASKED, name: value})


@pytest.mark.parametrize(("name", "value"), [("top_k", 2**31 - 1), ("seed", 2**64 - 1), ("seed", -1)])
def test_the_largest_that_fits_is_taken(name: str, value: int) -> None:
    assert getattr(read({**ASKED, name: value}), name) == value


def test_what_the_reference_says_a_number_may_be_is_what_the_engine_takes() -> None:
    fields = ChatRequest.model_json_schema()["properties"]
    numbers = [(name, fields[name]["anyOf"][0]) for name, _, _ in RANGES]
    assert [(name, one["minimum"], one["maximum"]) for name, one in numbers] == list(RANGES)
