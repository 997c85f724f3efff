"""Values with units, as people write them: "512 MiB", "90 %", "30 min"."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z%]*)\s*\Z")
BYTES = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for suffix, base in (("", 1024), ("b", 1000), ("ib", 1024))
}
SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def split(value: object, example: str) -> tuple[float, str]:
    """Number and unit of a setting's text; whole and broken numbers stand for themselves."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"is not an amount; write it like {example}")
    found = NUMBER.match(str(value))
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


@dataclass(frozen=True)
class Limit:
    """Either bytes or a share of something that is known only later."""

    bytes: int | None = None
    share: float | None = None

    def of(self, whole: int) -> int:
        """In bytes, where `whole` is what the share is of. Never more than `whole`."""
        wanted = int(whole * self.share) if self.share is not None else self.bytes
        assert wanted is not None
        return min(wanted, whole)

    def __str__(self) -> str:
        return f"{self.share * 100:g} %" if self.share is not None else f"{self.bytes} bytes"


def as_limit(value: object) -> Limit:
    if isinstance(value, Limit):
        return value
    number, unit = split(value, '"6 GiB" or "90 %"')
    if unit != "%":
        return Limit(bytes=in_bytes(value))
    if not 0 < number <= 100:
        raise ValueError("is not between 0 % and 100 %")
    return Limit(share=number / 100)


def plain(value: Any) -> str:
    return str(value)


Bytes = Annotated[int, BeforeValidator(in_bytes)]
Seconds = Annotated[float, BeforeValidator(in_seconds)]
BytesOrShare = Annotated[Limit, BeforeValidator(as_limit), PlainSerializer(plain)]
