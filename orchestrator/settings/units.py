"""What tables of settings are made of: frozen slices, and values with their units: "512 MiB", "90 %", "30 min". ValueError
says how one is written."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator

GIB = 1024**3
MIB = 1024**2
NUMBER = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z%]*)")
BYTES = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for suffix, base in (("", 1024), ("b", 1000), ("ib", 1024))
}
SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def split(value: object, example: str) -> tuple[float, str]:
    """Number and unit of a setting's text; whole and broken numbers stand for themselves."""
    is_amount = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    found = NUMBER.fullmatch(str(value).strip()) if is_amount else None
    if not found:
        raise ValueError(f"is not an amount; write it like {example}")
    return float(found[1]), found[2].lower()


def in_bytes(value: object) -> int:
    number, unit = split(value, '"512 MiB"')
    if unit not in BYTES:
        raise ValueError(f'has an unknown unit "{unit}"; write it like "512 MiB"')
    return int(number * BYTES[unit])


def in_seconds(value: object) -> float:
    number, unit = split(value, '"30 min"')
    if unit not in SECONDS:
        raise ValueError(f'has an unknown unit "{unit}"; write it like "30 min"')
    return number * SECONDS[unit]


def as_limit(value: object) -> str:
    """Bytes, or a share of something that is known only later: "6442450944" or "90%"."""
    number, unit = split(value, '"6 GiB" or "90 %"')
    if unit != "%":
        if not in_bytes(value):
            raise ValueError('leaves no memory at all; write it like "6 GiB" or "90 %"')
        return str(in_bytes(value))
    share = round(number, 3)
    if not 0 < share <= 100:
        raise ValueError("is not between 0 % and 100 %")
    return f"{share:g}%"


@dataclass(frozen=True)
class Measure:
    """What the number of a setting counts."""

    name: str


Bytes = Annotated[int, BeforeValidator(in_bytes), Measure("bytes")]
BytesOrShare = Annotated[str, BeforeValidator(as_limit), Measure("bytes or %")]
Seconds = Annotated[float, BeforeValidator(in_seconds), Measure("s")]
Tokens = Annotated[int, Measure("tokens")]


class Slice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*")
    @classmethod
    def without_nul(cls, value: Any) -> Any:
        """No path, name or address may hold one, and what first meets it may be far from here."""
        if isinstance(value, str) and "\0" in value:
            raise ValueError("holds a NUL character; take it out")
        return value
