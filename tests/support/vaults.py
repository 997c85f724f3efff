"""Vaults and their access codes, a line each: what the quoting model, given a line's beginning, goes on with."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.model import EngineSpec


def code(vault: int) -> str:
    """Random digits: the quoter sees eight tokens back, and codes that begin alike would all continue like the latest."""
    return f" {random.Random(vault).randrange(10**6, 10**7)}."


def line(vault: int) -> str:
    return f"The access code of vault {vault} north is"


@contextmanager
def quoting(model: Path) -> Iterator[LlamaBackend]:
    """The quoting model in this process, on one thread."""
    backend = LlamaBackend(EngineSpec(str(model), threads=1, batch=128, gpu_layers=0))
    try:
        yield backend
    finally:
        backend.close()
