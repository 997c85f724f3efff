"""Run by Python when the engine's child starts with this folder on its path, and by a fork: steps of the real backend then
fail on demand.

The file that FAULT_FILE names says how: a word in it is the fault of the next step, and is taken out; `every` before the
word leaves it, with `load` it is a fault of loading the model, with `restore` of the next restore, with `embed` of the next
batch of texts. `mix` fails nothing: prompts get tokens of other sequences of their memory. CHILD_PATIENCE is the watchdog's
least time, in seconds; CHILD_FACTOR is by how much a prediction may be overrun, next to nothing where all that is predicted
is to have that time.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

from orchestrator.engine import messages

MEASURING = 2  # sequences of the context in which a model is measured when it is loaded
PROMPT = 4  # tokens of a run; a shorter one is an answer's
SLOW_SECONDS = 6.0  # longer than the watchdog takes to look twice

if "FAULT_FILE" in os.environ:
    from orchestrator.engine.backend import BackendError, Run
    from orchestrator.engine.embedding.llama import LlamaEmbeddingContext
    from orchestrator.engine.embedding.port import Vectors
    from orchestrator.engine.llama.backend import LlamaBackend
    from orchestrator.engine.llama.memory import LlamaMemory
    from orchestrator.engine.model import KvOrigin, ModelInfo

    for _of in (messages, sys.modules.get("orchestrator.engine.child.worker", messages)):
        _of.OVERRUN_LEAST_SECONDS = float(os.environ.get("CHILD_PATIENCE", messages.OVERRUN_LEAST_SECONDS))
        _of.OVERRUN_FACTOR = float(os.environ.get("CHILD_FACTOR", messages.OVERRUN_FACTOR))
    _file = Path(os.environ["FAULT_FILE"])
    _decode, _restore, _vectors = LlamaMemory.decode, LlamaMemory.restore, LlamaEmbeddingContext.vectors
    _loaded = LlamaBackend._describe

    _read: WeakKeyDictionary[LlamaMemory, dict[int, dict[int, int]]] = WeakKeyDictionary()

    def decode(memory: LlamaMemory, runs: Sequence[Run]) -> None:
        if _file.exists() and "mix" in _file.read_text().split():
            runs = [mixed(run, _read.setdefault(memory, {})) for run in runs]
        elif memory.sequences != MEASURING:
            suffer("step")
        _decode(memory, runs)

    def loaded(backend: LlamaBackend, found: KvOrigin) -> ModelInfo:
        """The end of a load: all weights are there."""
        suffer("load")
        return _loaded(backend, found)

    def mixed(run: Run, read: dict[int, dict[int, int]]) -> Run:
        """The run with what another sequence of this memory has at the same places. Its length and its places are right: no
        law of the cells is broken."""
        own = {run.start + at: token for at, token in enumerate(run.tokens)}
        others = [cells for sequence, cells in read.items() if sequence != run.sequence and own.keys() <= cells.keys()]
        read.setdefault(run.sequence, {}).update(own)
        if len(own) < PROMPT or not others:
            return run
        return replace(run, tokens=[others[-1][at] for at in own])

    def restore(memory: LlamaMemory, sequence: int, state: bytes) -> int:
        suffer("restore")
        return _restore(memory, sequence, state)

    def vectors(context: LlamaEmbeddingContext, texts: Sequence[Sequence[int]]) -> Vectors:
        suffer("embed")
        return _vectors(context, texts)

    def suffer(where: str) -> None:
        words = _file.read_text().split() if _file.exists() else []
        if where not in ({"load", "restore", "embed"} & set(words) or {"step"}):
            return
        if words and "every" not in words:
            _file.write_text("")
        fault = words[-1] if words else ""
        if fault == "hang":
            signal.pause()
        elif fault == "slow":
            time.sleep(SLOW_SECONDS)
        elif fault == "abort":
            os.abort()
        elif fault == "memory":
            raise MemoryError
        elif fault == "fail":
            raise BackendError("a step that fails on demand")

    LlamaMemory.decode = decode  # type: ignore[method-assign]
    LlamaMemory.restore = restore  # type: ignore[method-assign]
    LlamaBackend._describe = loaded  # type: ignore[method-assign]
    LlamaEmbeddingContext.vectors = vectors  # type: ignore[method-assign]
