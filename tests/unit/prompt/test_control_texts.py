"""Whatever field of a turn spells a control token: the prompt holds no more of them than the template put there."""

from array import array
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from formatters.blocks import Role
from formatters.context import TurnContext
from orchestrator.prompt.composing import Composer

PLAIN = "plain"


def filled(kind: Any, text: str) -> Any:
    """A value of this type with `text` in every place that takes any text; a field of few words keeps one of them."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: field_of(kind, name, text) for name in kind.model_fields}
    if origin is Annotated:
        return text if arguments[0] is str else filled(arguments[0], text)
    if origin in (Union, UnionType):
        return filled(next(one for one in arguments if one is not NoneType), text)
    if origin is Literal:
        return arguments[0]
    if origin in (tuple, frozenset):
        return [filled(arguments[0], text)]
    if origin is Mapping:
        return {text: {"description": text, "enum": [text]}}
    return {str: text, int: 1, float: 1.0, bool: True, Role: Role.USER}[kind]


def field_of(view: type[BaseModel], name: str, text: str) -> Any:
    field = view.model_fields[name]
    kind = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    value = filled(kind, text)
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return field.get_default(call_default_factory=True)  # a word of an alphabet that no control token is spelled in
    return value


async def composed(composer: Composer, text: str) -> tuple[list[int], str]:
    """Ids and text of the prompt of a turn that says this everywhere."""
    made = await composer.compose(TurnContext.model_validate(filled(TurnContext, text)))
    return [one for block in made.assembled.blocks for one in array("I", block.ids)], made.text


@pytest.mark.anyio
async def test_no_field_of_a_turn_adds_a_control_token(composer: Composer, marks: dict[str, int]) -> None:
    spelled = "".join(marks)
    plain, _ = await composed(composer, PLAIN)
    marked, text = await composed(composer, spelled)
    assert [one for one in marked if one in marks.values()] == [one for one in plain if one in marks.values()] != []
    assert text.count(spelled) > 20, "the marks are in the prompt, as text"
