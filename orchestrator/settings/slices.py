"""What every slice of the settings is made of."""

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator


class Slice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*")
    @classmethod
    def without_nul(cls, value: Any) -> Any:
        """No path, name or address may hold one, and what first meets it may be far from here."""
        if isinstance(value, str) and "\0" in value:
            raise ValueError("holds a NUL character; take it out")
        return value


def unit(name: str) -> dict[str, Any]:
    return {"unit": name}
