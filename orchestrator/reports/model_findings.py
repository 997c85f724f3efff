"""What `lore doctor` finds of the model that is configured: its file, its settings, and what of its floors lies on disk.

Reads only, and loads no model. Knows no daemon.
"""

from pathlib import Path
from typing import Any

from governor.errors import FootprintError
from governor.footprint import bytes_per_token
from governor.offload import Offload, impossible
from orchestrator.engine.model import EngineSpec
from orchestrator.errors import InvalidRequest
from orchestrator.model.folder import builtins
from orchestrator.model.model_file import DEFAULT, ModelFile, find_model
from orchestrator.model.offloading import engine_offloads, offload_of
from orchestrator.reports.models import ranges
from orchestrator.reports.placement import placement_report
from orchestrator.settings.model import ModelSettings, Settings


def model_findings(settings: Settings, models: Path) -> dict[str, Any]:
    """`setting`, and `fault` with its `hint`, "" for a model that can be loaded; only then the rest is there. `made` is
    False for a built-in one whose file does not exist yet."""
    chosen = settings.model.path or DEFAULT
    report = {"setting": chosen, "fault": "", "hint": "", "made": True}
    if any(one.about for one in builtins(models) if one.id == chosen):
        return report | {"made": False}
    try:
        return report | described(find_model(settings.model.path, models), settings.model)
    except InvalidRequest as error:
        return report | {"fault": error.message, "hint": error.hint}


def described(model: ModelFile, given: ModelSettings) -> dict[str, Any]:
    offload = here(given)
    wrong = impossible(model.shape, offload, None)
    try:
        per_token = bytes_per_token(model.shape, offload.plan)
    except FootprintError:
        per_token = None
    return {
        "path": str(model.path),
        "architecture": model.shape.architecture,
        "unpredictable": model.shape.unpredictable or "",
        "ranges": ranges(model.shape),
        "template": placement_report(model.placement),
        "kv": {"keys": given.kv_type_k, "values": given.kv_type_v, "bytes_per_token": per_token},
        "flash_attention": offload.plan.flash_attention,
        "impossible": [{"setting": one.setting, "why": one.why, "instead": one.instead} for one in wrong],
    }


def floors_on_disk(path: str, given: ModelSettings, checkpoints: Path) -> dict[str, int]:
    """Bytes of checkpoints that this file with these settings can use (`own`), and of all others (`other`)."""
    from orchestrator.engine.checkpoints.fingerprint import (
        fingerprint,  # loads llama.cpp: only where that is known to work
    )

    own = fingerprint(spec_of(path, here(given)))[:32]
    found = {"own": 0, "other": 0}
    for folder in checkpoints.iterdir() if checkpoints.is_dir() else ():
        if folder.is_dir():
            found["own" if folder.name == own else "other"] += sum(one.stat().st_size for one in folder.iterdir())
    return found


def spec_of(path: str, offload: Offload) -> EngineSpec:
    """As far as cells depend on it."""
    plan, context = offload.plan, offload.context or 0
    return EngineSpec(
        path,
        kv_type_k=plan.keys,
        kv_type_v=plan.values,
        flash_attention=plan.flash_attention,
        context=context,
    )


def here(given: ModelSettings) -> Offload:
    """How the daemon would have it loaded with the engine that is installed."""
    return offload_of(given, offloads=engine_offloads())
