"""Calls into plug-ins, which are foreign code: it may raise anything, try to end the process, and never return."""

import threading
from collections.abc import Callable
from typing import Any

LIMIT_S = 2.0  # that the writing of a prompt waits for one plug-in: all other questions wait meanwhile
THREAD = "formatter of a package"


def attempted(work: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """What it gives, and what it raised. That it would end the process is a fault like any other. Not for the main
    thread, where Ctrl-C raises too."""
    try:
        return work(), None
    except Exception as fault:  # noqa: BLE001 - handed on
        return None, fault
    except BaseException as fault:  # noqa: BLE001 - SystemExit above all
        return None, RuntimeError(f"it raised {type(fault).__name__}")


class ForeignCalls:
    """The calls of one plug-in, each in a thread of its own, so that its caller goes on where it hangs. One that took
    longer than `limit_s` seconds is not called again before the next start: it would wait as long, and leave a thread."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._hangs = False

    def __call__(self, work: Callable[[], Any]) -> Any:
        """Raises TimeoutError, and whatever `work` raises."""
        if not self._hangs:
            ended: list[tuple[Any, Exception | None]] = []
            thread = threading.Thread(target=lambda: ended.append(attempted(work)), daemon=True, name=THREAD)
            thread.start()
            thread.join(self._limit_s)
            if ended:
                result, fault = ended[0]
                if fault is not None:
                    raise fault
                return result
            self._hangs = True
        raise TimeoutError(f"it took longer than {self._limit_s:g} s, and is left out until the daemon starts again")
