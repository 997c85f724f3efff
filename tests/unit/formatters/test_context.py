"""The turn's typed context: frozen, strict about typos and levels, cheap to build."""

import time

import pytest
from pydantic import ValidationError

from formatters.context import (
    CodexPiece,
    CodexView,
    EnvironmentView,
    Evidence,
    SigilView,
    StateView,
    TurnContext,
    TurnView,
)
from formatters.testing import samples


def test_a_context_is_frozen_in_all_its_parts() -> None:
    for context in samples():
        for part in (context, context.identity, context.sigil, context.environment, context.state):
            with pytest.raises(ValidationError, match="frozen"):
                setattr(part, next(iter(type(part).model_fields)), None)


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="colour"):
        SigilView.model_validate({"name": "owner", "uid": 0, "colour": "red"})


@pytest.mark.parametrize("level", ["87 %", "6.2 GiB free", "", "CALM"])
def test_a_level_is_a_word_and_never_a_number(level: str) -> None:
    with pytest.raises(ValidationError):
        EnvironmentView(vram=level)


def test_a_path_with_a_line_break_cannot_forge_a_heading() -> None:
    with pytest.raises(ValidationError):
        CodexPiece(path="a.py ===\n=== b.py", text="")


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 2)])
def test_lines_count_from_one_and_run_forwards(start: int, end: int) -> None:
    with pytest.raises(ValidationError):
        Evidence(path="a.py", start=start, end=end, text="")


def test_closing_a_turn_keeps_what_came_with_it() -> None:
    state = samples()[1].state
    answer = TurnView(role="assistant", text="There.")
    closed = state.closed("Where?", answer)
    asked = closed.turns[-2]
    assert (asked.text, asked.evidence, asked.attachments, asked.amendments) == (
        "Where?",
        state.evidence,
        state.attachments,
        state.amendments,
    )
    assert closed == StateView(turns=(*state.turns, asked, answer))


def test_a_context_over_thousands_of_pieces_is_built_in_under_a_millisecond() -> None:
    sample = samples()[1]
    codex = CodexView(name="large", pieces=tuple(CodexPiece(path=f"f{n}.py", text="x\n") for n in range(5_000)))
    parts = {name: getattr(sample, name) for name in TurnContext.model_fields} | {"codex": codex}

    def build() -> float:
        started = time.perf_counter()
        built = TurnContext(**parts)
        took = time.perf_counter() - started
        assert built.codex is codex
        return took

    assert min(build() for _ in range(20)) < 0.001
