"""The page of `lore model show`. Pure."""

from collections.abc import Mapping
from typing import Any

from orchestrator.cli.figures import count, plural, size, table

Part = Mapping[str, Any]


def page(model: Part) -> str:
    lines = [
        f"model      {model['id']}" + (", loaded" if model.get("loaded") else ""),
        f"file       {model.get('path') or 'none'}",
        f"{'use' if 'embedding' in model else 'fits':<11}{model.get('words', 'unknown')}",
    ]
    if "embedding" in model:
        return "\n".join([*lines, *embedding_lines(model)])
    if "architecture" not in model:
        return "\n".join(lines)
    lines += [*made_of(model), *kv_lines(model["kv"]), *memory_lines(model.get("memory")), *cut_lines(model["ranges"])]
    lines += template_lines(model["template"])
    return "\n\n".join(["\n".join(lines), kv_table(model["kv"]), settings_table(model["settings"])])


def made_of(model: Part) -> list[str]:
    types = ", ".join(f"{name} {size(held)}" for name, held in model["weights"]["by_type"].items())
    return [
        f"is         {model['name']}: {model['architecture']}, {count(model['layers'])} layers, {heads(model)}, "
        f"{count(model['vocabulary'])} tokens of vocabulary",
        f"trained    {count(model['trained_context'])} tokens",
        f"weights    {size(model['weights']['total'])} in {model['quantisation']}: {types}",
    ]


def embedding_lines(model: Part) -> list[str]:
    embedding, lines = model["embedding"], []
    if "architecture" in model:  # its file is made
        lines.append(
            f"is         {model['name']}: {model['architecture']}, {plural(model['layers'], 'layer')}, "
            f"{model['quantisation']}, {count(model['vocabulary'])} tokens of vocabulary"
        )
    return [
        *lines,
        f"vectors    {count(embedding['dimensions'])} dimensions",
        f"window     {count(embedding['window'])} tokens of a text",
        f"size       {size(model.get('bytes') or 0)}",
        *embedding_memory(model.get("memory")),
    ]


def embedding_memory(memory: Part | None) -> list[str]:
    """Once it is loaded, for questions and for the background."""
    if not memory:
        return []
    return [
        f"memory     {size(memory['weights'])} of weights and {size(memory['buffers'])} of buffers beside the model"
    ]


def heads(model: Part) -> str:
    if not model["heads"]:
        return "no attention heads"
    shared = model["heads"] != model["kv_heads"]
    return plural(model["heads"], "head") + (f" on {plural(model['kv_heads'], 'KV head')}" if shared else "")


def kv_lines(kv: Part) -> list[str]:
    if kv["bytes_per_token"] is None:
        return ["KV         cannot be predicted; the real size is read when it is loaded"]
    window = f", sliding layers see {count(kv['window'])} tokens" if kv["window"] else ""
    return [f"KV         {count(kv['bytes_per_token'])} B a token{window}"]


def memory_lines(memory: Part | None) -> list[str]:
    if memory is None:
        return []
    layers = f", {memory['gpu_layers']} of {memory['layers']} layers on the GPU" if memory["where"] == "VRAM" else ""
    buffers = f"about {size(memory['buffers'])} of buffers a pool"
    lines = [f"memory     {memory['where']}: {size(memory['kv_bytes'])} for KV, {buffers}{layers}"]
    for gpu in memory.get("gpus", ()):
        held = f"{size(gpu['weights'])} of weights, {size(gpu['kv_bytes'])} of KV"
        lines.append(f"           {gpu['name']}: {count(gpu['layers'])} layers, {held}; {size(gpu['free'])} free now")
    return lines


def cut_lines(ranges: Part) -> list[str]:
    words = "in ranges: a conversation's checkpoint is its tail alone" if ranges["cut"] else f"no: {ranges['why']}"
    return [f"cut        {words}"]


def template_lines(template: Part) -> list[str]:
    lines = [f"template   {template['words']}"]
    if template["reason"]:
        lines.append(f"           because {template['reason']}")
    if not template["keeps_answers"]:
        lines.append("           a closed turn is rendered anew: it is computed once more behind the answer")
    return lines


def kv_table(kv: Part) -> str:
    rows = [
        (name, f"{one['bytes_per_token'] / 1024:.1f}", count(one["context"]) if one["context"] is not None else "none")
        for name, one in kv["types"].items()
    ]
    return table(("KV type", "KiB a token", "context that fits"), rows)


def settings_table(settings: list[Part]) -> str:
    rows = [
        (one["setting"], one["value"], "yes" if one["suits"] else "NO", one["costs"], one["note"]) for one in settings
    ]
    return table(("setting", "value", "suits", "costs", ""), rows)
