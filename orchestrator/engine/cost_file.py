"""The learned costs of steps, kept from one process to the next beside the checkpoints of the same model and settings."""

import json
import logging
from pathlib import Path

from orchestrator.engine.costs import Costs

log = logging.getLogger("lorekeep.engine")


def load_costs(costs: Costs, path: Path) -> None:
    """Takes up what was kept; a missing or damaged file means that they are learned anew."""
    try:
        costs.resume(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, AttributeError) as error:
        log.warning("%s is not usable, costs are learned anew: %s", path, error)


def save_costs(costs: Costs, path: Path) -> None:
    """Written whole or not at all; a full disk is no reason to fail."""
    temporary = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.write_text(json.dumps(costs.kept()), "utf-8")
        temporary.replace(path)
    except OSError as error:
        log.warning("the costs of steps were not kept: %s", error)
