"""What every slice of the settings is made of."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Slice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def unit(name: str) -> dict[str, Any]:
    return {"unit": name}
