"""A fault at the command line's edge: an exit status and two lines for a person."""

import json
import sys
from typing import Any

from orchestrator.cli.terminal import safe
from orchestrator.wire import faults


class Failure(Exception):
    """`message` says what and where, `hint` what to do."""

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint

    def show(self) -> None:
        sys.stdout.flush()
        lines = f"lore: {self.message}\n" + (f"      {self.hint}\n" if self.hint else "")
        sys.stderr.write(safe(lines, sys.stderr))


def failure_of(answer: Any) -> Failure:
    """From the daemon's error object; anything else is shown as it came."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return Failure(faults.FAILED, f"the daemon's answer is none of ours: {json.dumps(answer)[:200]}")
    status = faults.exit_status(str(error.get("code", "")))
    return Failure(status, str(error.get("message", "failed")), str(error.get("hint", "")))
