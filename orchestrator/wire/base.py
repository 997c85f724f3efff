"""What every shape on the wire is made of. All are frozen, and made ready for use when they are first used."""

from operator import not_
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class ReplyShape(BaseModel):
    """Base of what the daemon sends: keys of a newer peer are ignored, so that both sides may grow."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", populate_by_name=True, serialize_by_alias=True, defer_build=True
    )
    ends: ClassVar[str] = ""  # the last event of a stream of these, which is no JSON; '': it has none

    @classmethod
    def of(cls, source: object, **more: Any) -> Self:
        """Every field by its name: from `more`, else from `source`, a member of a StrEnum as its value. No default stands
        in for what neither of them has: raises AttributeError."""
        found = {name: getattr(source, name) for name in cls.model_fields if name not in more}
        return cls(**found, **more)


empty = not_
"""For `exclude_if`: a field that holds nothing is left out."""


class SparseReply(ReplyShape):
    """Base of replies that leave out what they were not given, instead of its default."""

    @model_serializer(mode="wrap")
    def _given(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]  # the schema would be its type's
        return {name: value for name, value in write(self).items() if name in self.model_fields_set}


class RequestShape(BaseModel):
    """Base of what clients of a protocol send: they send many keys that mean nothing here. A value has its own JSON type:
    "0" is no number and true is no count; a whole number is a number."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, populate_by_name=True, defer_build=True)


class StrictRequest(RequestShape):
    """Base of what only our own clients send: typing errors are refused."""

    model_config = ConfigDict(extra="forbid")


def without_nul(text: str) -> str:
    """No path, no argument of a program and no name holds one; what the system says of it is no answer to a person."""
    if "\0" in text:
        raise ValueError("holds a NUL character, which no name does")
    return text


Plain = Annotated[str, AfterValidator(without_nul)]
