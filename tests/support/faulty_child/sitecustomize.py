"""Run by Python when the engine's child starts with this folder on its path: steps of the real backend then fail on demand.

The file that FAULT_FILE names says how: a word in it is the fault of the next step, and is taken out; `every` before the
word leaves it, with `load` it is a fault of loading the model, with `restore` of the next restore. CHILD_PATIENCE is the
watchdog's least time, in seconds.
"""

import os
import signal
import time
from pathlib import Path

MEASURING = 2  # sequences of the context in which a model is measured when it is loaded
SLOW_SECONDS = 4.0  # longer than the watchdog takes to look twice

if "FAULT_FILE" in os.environ:
    from orchestrator.engine import watchdog
    from orchestrator.engine.backend import BackendError, Batch
    from orchestrator.engine.llama.memory import LlamaMemory

    watchdog.LEAST_SECONDS = float(os.environ.get("CHILD_PATIENCE", watchdog.LEAST_SECONDS))
    _file = Path(os.environ["FAULT_FILE"])
    _decode, _restore = LlamaMemory.decode, LlamaMemory.restore

    def decode(memory: LlamaMemory, batch: Batch) -> None:
        suffer("load" if memory.sequences == MEASURING else "step")
        _decode(memory, batch)

    def restore(memory: LlamaMemory, sequence: int, state: bytes) -> int:
        suffer("restore")
        return _restore(memory, sequence, state)

    def suffer(where: str) -> None:
        words = _file.read_text().split() if _file.exists() else []
        if where not in ({"load", "restore"} & set(words) or {"step"}):
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
