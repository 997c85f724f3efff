"""What every shape on the wire is made of. All are frozen."""

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """Base of what the daemon sends: keys of a newer peer are ignored, so that both sides may grow."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, serialize_by_alias=True)


class Request(BaseModel):
    """Base of what clients of a protocol send: they send many keys that mean nothing here."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Strict(BaseModel):
    """Base of what only our own clients send: typing errors are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
