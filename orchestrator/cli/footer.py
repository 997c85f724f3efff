"""The lines under an answer: which codex in which state, which strategy, what was reused. Pure."""

from typing import Any

from orchestrator.cli.figures import count, plural, seconds

QUOTER = "builtin:quoter"
QUOTING = "builtin:quoter only quotes; a real model: lore model use FILE.gguf"


def footer(lore: dict[str, Any], *, known: bool = False) -> list[str]:
    """From an answer's lore object; what is missing in it is left out. `known`: who reads has read the model's notice, so
    that its name is enough."""
    if not lore:
        return []
    notice = notice_of(lore)
    model = str(lore.get("model", "")) if notice and known else ""
    strategy = strategy_part(lore.get("strategy", {})) if lore.get("codex") else ""  # without one there is none to take
    parts = [codex_part(lore.get("codex")), strategy, *prompt_parts(lore), model]
    lines = [" · ".join(part for part in parts if part)]
    if lore.get("session"):
        lines.append(f'session {lore["session"]} · go on: lore ask -s {lore["session"]} "…"')
    lines += citation_lines(lore.get("citations", ()))
    lines += lore.get("notices", ())
    return [*lines, notice] if notice and not known else lines


def notice_of(lore: dict[str, Any]) -> str:
    """What must be known of the model that answered, in short: `lore status` and `lore doctor` say it in full."""
    notice = str(lore.get("notice") or "")
    if not str(lore.get("model", "")).startswith(QUOTER):
        return notice
    return "; ".join(map(in_short, notice.split("; "))) if notice else QUOTING


def in_short(notice: str) -> str:
    if "quoting self-test model" not in notice:
        return notice
    return f"no model is configured: {QUOTING}" if notice.startswith("no model is configured") else QUOTING


def codex_part(codex: dict[str, Any] | None) -> str:
    if not codex:
        return "no codex"
    state = code_state(codex)
    indexing = ", still indexing" if codex.get("indexing") else ""
    return f"{codex['name']} {state}".rstrip() + indexing


def code_state(codex: dict[str, Any]) -> str:
    """`main@1a2b3c4 + 1 changed, 1 removed file`: of a removed one, the last text may still be quoted."""
    revision = str(codex.get("revision") or "")[:7]
    branch = codex.get("branch") or ""
    state = f"{branch}@{revision}" if branch and revision else revision or branch
    words = changed_files(len(codex.get("amendments", ())), len(codex.get("removed", ())))
    return f"{state} + {words}".lstrip() if words else state


def changed_files(amended: int, removed: int) -> str:
    """`removed` are some of the `amended`."""
    changed = amended - removed
    if changed and removed:
        return f"{changed} changed, {plural(removed, 'removed file')}"
    kind, number = ("removed file", removed) if removed else ("changed file", changed)
    return plural(number, kind) if number else ""


def strategy_part(strategy: dict[str, Any]) -> str:
    name, tier = strategy.get("name", ""), strategy.get("tier", "")
    return f"{name} ({tier})" if name and tier else name


def prompt_parts(lore: dict[str, Any]) -> list[str]:
    prompt = lore.get("prompt", {})
    timings = lore.get("timings", {})
    parts = [f"{count(prompt.get('cached', 0))} tokens cached, {count(prompt.get('computed', 0))} computed"]
    if timings.get("ttft_ms"):
        parts.append(f"first token {seconds(timings['ttft_ms'])}")
    if timings.get("tokens_per_second"):
        parts.append(f"{timings['tokens_per_second']:.1f} tokens/s")
    return parts


def citation_lines(citations: Any) -> list[str]:
    """Each place once; what is wrong with one stands behind it."""
    places = {f"{cited['path']}:{cited['start']}": wrong_with(cited) for cited in citations}
    shown = [f"{place} ({wrong})" if wrong else place for place, wrong in places.items()]
    return [f"cites {', '.join(shown)}"] if shown else []


def wrong_with(cited: dict[str, Any]) -> str:
    return "" if cited.get("valid") else str(cited.get("why") or "not there")
