"""The few things the command line does without a daemon. Here alone it loads what is not its own, and only when called."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli.faults import Failure
from orchestrator.wire import faults

if TYPE_CHECKING:
    from orchestrator.settings import Loaded


def settings(config: str | None = None, options: Mapping[str, Any] | None = None) -> "Loaded":
    """Raises Failure for what cannot be used."""
    from orchestrator.errors import LoreError
    from orchestrator.settings import load

    chosen = {key: value for key, value in (options or {}).items() if value is not None}
    try:
        return load(os.environ, config=Path(config) if config else None, options=chosen)
    except LoreError as error:
        raise Failure(faults.exit_status(error.code), error.message, error.hint) from error


def settings_table(config: str | None, socket: str | None) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from orchestrator.settings.describe import describe

    loaded = settings(config, {"serve.socket": socket})
    return [asdict(row) for row in describe(loaded.settings, loaded.origins)]


def settings_files(config: str | None = None) -> list[dict[str, Any]]:
    """Every file that is looked for, in its order, and whether it is there."""
    from orchestrator.settings.paths import SYSTEM_CONFIG
    from orchestrator.settings.sources import user_file

    named = config or os.environ.get("LORE_CONFIG")
    files = [Path(named)] if named else [SYSTEM_CONFIG, user_file(os.environ)]
    return [{"path": str(file), "exists": file.is_file()} for file in files]


def serve(config: str | None, options: Mapping[str, Any]) -> int:
    """Runs the daemon in this process until it ends; its exit status."""
    from orchestrator.errors import LoreError

    loaded = settings(config, options)
    try:
        from orchestrator.daemon import run

        return run(loaded.settings)
    except LoreError as error:
        raise Failure(faults.exit_status(error.code), error.message, error.hint) from error
