"""Headers of many architectures, for the rooms that read them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import tiny_models


@pytest.fixture(scope="session")
def recipes() -> dict[str, Any]:
    """Metadata and tensor shapes by architecture."""
    return tiny_models.recipes()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_model("llama", **{"context_length": 512})` writes a model and gives its path; None removes a key."""
    return partial(tiny_models.written, tmp_path_factory.mktemp("tiny"))
