"""`lore doctor`: checks the installation, and on request runs it once from end to end."""

from dataclasses import asdict
from typing import Annotated

import typer

from orchestrator.cli import options as given
from orchestrator.cli.check import Check
from orchestrator.cli.terminal import result, result_json
from orchestrator.wire import faults

SelfTest = Annotated[bool, typer.Option("--self-test", help="run load, ask, restart, ask on the built-in model")]


def doctor(self_test: SelfTest = False, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Checks the installation; each finding comes with the command that mends it."""
    from orchestrator.cli.checks import all_checks
    from orchestrator.cli.selftest import run

    checks = run() if self_test else all_checks(socket)
    ok = all(check.ok for check in checks)
    if as_json:
        result_json({"ok": ok, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            result(f"  {check.name:10} {check.detail}", lead=lead(check))
            if check.fix:
                result(f"{'':17}{'fix' if not check.ok else 'tip'}: {check.fix}")
    if not ok:
        raise typer.Exit(faults.FAILED)


def lead(check: Check) -> str:
    if not check.ok:
        return "BAD "
    return "none" if check.absent else "good"
