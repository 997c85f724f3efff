"""Settings as a table for people: every key with value, default, unit, range and help."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from orchestrator.settings.model import Settings


@dataclass(frozen=True)
class Row:
    key: str
    value: Any
    default: Any
    origin: str
    unit: str
    range: str
    help: str


def describe(settings: Settings, origins: Mapping[str, str]) -> list[Row]:
    return [
        Row(
            key=key,
            value=shown(value),
            default=shown(field.default),
            origin=origins.get(key, "default"),
            unit=unit_of(field),
            range=range_of(field),
            help=field.description or "",
        )
        for key, field, value in leaves(settings)
    ]


def leaves(part: BaseModel, prefix: str = "") -> Iterable[tuple[str, FieldInfo, Any]]:
    """Every setting below `part`, also those of named tables (sigils, tokens) that exist."""
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{prefix}{name}.")
        elif isinstance(value, dict):
            for entry, rule in value.items():
                yield from leaves(rule, f"{prefix}{name}.{entry}.")
        else:
            yield f"{prefix}{name}", field, value


def nearest(key: str) -> str:
    """The known key that looks most like this one; a right name in the wrong table counts most."""
    known = [name for name, _, _ in leaves(Settings())]
    leaf = key.rpartition(".")[2]
    same = [name for name in known if name.rpartition(".")[2] == leaf]
    close = same or difflib.get_close_matches(key, known, n=1, cutoff=0.0)
    return close[0]


def nearest_section(name: str) -> str:
    return difflib.get_close_matches(name, Settings.model_fields, n=1, cutoff=0.0)[0]


def shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, (bool, int, float, str)) or value is None else str(value)


def unit_of(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""


def range_of(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "range" in extra:  # where a number or a word may stand
        return str(extra["range"])
    signs = {"ge": "≥ ", "gt": "> ", "le": "≤ ", "lt": "< "}
    bounds = [
        f"{sign}{getattr(rule, name)}" for rule in field.metadata for name, sign in signs.items() if hasattr(rule, name)
    ]
    choices = [str(choice) for choice in get_args(field.annotation) if isinstance(choice, str)]
    return ", ".join(bounds) or " | ".join(choices)
