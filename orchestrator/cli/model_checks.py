"""What `lore doctor` says of the model that is configured."""

from typing import Any

from orchestrator.cli import local
from orchestrator.cli.check import Check
from orchestrator.cli.faults import Failure
from orchestrator.cli.figures import count, size

QUOTER = "it only continues text that stands in its context, for trying out; a real one: lore model use FILE.gguf"


def model(*, engine_runs: bool) -> list[Check]:
    """`engine_runs`: llama.cpp can be loaded, so that its fingerprint of a model can be asked for."""
    try:
        found = local.model_findings()
    except Failure:
        return [Check("model", False, "the settings cannot be read", "lore config check")]
    if found["fault"]:
        return [
            Check("model", False, found["fault"], found["hint"] or "lore model use NAME, with one of lore model list")
        ]
    named = found["setting"]
    about = f"; {QUOTER}" if named == "builtin:quoter" else ""
    if not found["made"]:
        return [Check("model", True, f"{named}, whose file is made on first need{about}"), embedding()]
    checks = [
        Check("model", True, f"{named}: {found['architecture']}{about}", found["unpredictable"]),
        template(found["template"]),
        kv(found),
        *[Check("loading", False, f"{one['setting']}: {one['why']}", one["instead"]) for one in found["impossible"]],
        embedding(),
    ]
    return [*checks, floors(found["path"])] if engine_runs else checks


def template(told: dict[str, Any]) -> Check:
    because = f", because {told['reason']}" if told["reason"] else ""
    return Check("template", True, f"{told['words']}{because}")


def kv(found: dict[str, Any]) -> Check:
    cut = found["ranges"]
    words = "can be cut in ranges: a checkpoint is a tail alone" if cut["cut"] else f"is kept whole: {cut['why']}"
    types, flash = found["kv"], "on" if found["flash_attention"] else "off"
    cost = f", {count(types['bytes_per_token'])} B a token" if types["bytes_per_token"] is not None else ""
    return Check("KV", True, f"{words}; keys {types['keys']}, values {types['values']}{cost}; flash attention {flash}")


def embedding() -> Check:
    loaded = local.settings()
    named = loaded.settings.embedding.model
    tip = "lore model get hf:OWNER/REPO/FILE.gguf, and set embedding.model"
    for fault in local.unusable(loaded):
        if fault["key"] == "embedding.model":
            return Check("embedding", False, fault["message"], tip)
    return Check("embedding", True, named or "none: search goes by words and names", "" if named else tip)


def floors(path: str) -> Check:
    """A model whose file, KV types or flash attention changed finds none of the floors that were made before."""
    held = local.floors_on_disk(path)
    other = f"; {size(held['other'])} were made with another model, file or KV type" if held["other"] else ""
    if held["own"]:
        return Check("floors", True, f"{size(held['own'])} on disk are of this file with these settings{other}")
    why = "the file or its settings changed since, or it was never asked" if held["other"] else "nothing was asked yet"
    return Check("floors", True, f"none on disk is of this file with these settings: {why}{other}")
