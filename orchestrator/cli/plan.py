"""`lore plan`: everything decided for a question, and nothing run; its page is pure."""

from typing import Annotated, Any

import typer

from orchestrator.cli import options as given
from orchestrator.cli.ask import body_of, codex_part
from orchestrator.cli.client import Daemon
from orchestrator.cli.figures import count, seconds, size, table
from orchestrator.cli.options import UNSAID, AskOptions, Question, with_ask_options
from orchestrator.cli.terminal import output, result

Prompt = Annotated[bool, typer.Option("--prompt", help="print the exact text that the engine would get")]
BAR = 20  # the widest, in characters


@with_ask_options
def plan(
    question: Question = None,
    options: AskOptions = UNSAID,
    prompt: Prompt = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Shows what would be sent for a question, what of it is cached, and why."""
    report = Daemon(socket).call("POST", "/v1/plan", {**body_of(question, options), "prompt": prompt})
    if prompt and not as_json:
        result(report.get("text", ""), end="")
    else:
        output(report, plan_page, as_json=as_json)


def plan_page(report: dict[str, Any]) -> str:
    parts = [decision(report), blocks(report.get("blocks", [])), numbers(report)]
    if broke := report.get("broke_at"):
        parts.append(f"left the cached prompt in {broke.get('block')}, at {broke.get('item')}: {broke.get('why')}")
    if needs := report.get("needs"):
        parts.append(
            f"not with the coverage that is resident; with the coverage {needs.get('tier')}: {needs.get('cost')}"
        )
    parts.append("\n".join(passages(report)))
    return "\n\n".join(part for part in parts if part)


def decision(report: dict[str, Any]) -> str:
    strategy = report.get("strategy", {})
    lines = [
        f"{codex_part(report.get('codex'))}",
        f"{strategy.get('name', '')}: tier {strategy.get('tier', '')}, retrieval {strategy.get('retrieval', '')}, "
        f"task {strategy.get('task', '')}, confidence {strategy.get('confidence', 0):.2f}",
        f"  {strategy.get('reason', '')}",
        *(f"  {number}. {step}" for number, step in enumerate(strategy.get("steps", ()), start=1)),
    ]
    return "\n".join(line for line in lines if line.strip())


def blocks(given: list[dict[str, Any]]) -> str:
    longest = max((block["tokens"] for block in given), default=0)
    rows = [
        (block["kind"], count(block["tokens"]), count(block["cached"]), origin(block), bar(block, longest))
        for block in given
    ]
    return table(("block", "tokens", "cached", "from", ""), rows) if rows else ""


def origin(block: dict[str, Any]) -> str:
    """Where most of it comes from; nothing comes from anywhere into an empty one."""
    return str(block.get("from", "")) if block["tokens"] else "empty"


def bar(block: dict[str, Any], longest: int) -> str:
    """Full where cached, light where it will be computed."""
    width = round(BAR * block["tokens"] / longest) if longest else 0
    full = round(width * block["cached"] / block["tokens"]) if block["tokens"] else 0
    return "█" * full + "░" * (width - full)


def numbers(report: dict[str, Any]) -> str:
    prompt, governor = report.get("prompt", {}), report.get("governor", {})
    strategy, predicted = report.get("strategy", {}), report.get("predicted") or {}
    lines = [
        f"prompt     {count(prompt.get('tokens', 0))} tokens: {count(prompt.get('cached', 0))} cached, "
        f"{count(prompt.get('computed', 0))} to compute",
        f"window     {count(strategy.get('window', 0))} tokens, {count(strategy.get('available_tokens', 0))} left",
        f"governor   {governor.get('level', '')}, {size(governor.get('kv_bytes', 0))} of KV, "
        f"budget {count(governor.get('budget_tokens', 0))} tokens",
        *(f"           {action}" for action in governor.get("actions", ())),
        *memory(report.get("memory")),
    ]
    if predicted.get("ttft_ms") is not None:
        lines.append(f"predicted  first token in {seconds(predicted['ttft_ms'])}")
    return "\n".join(lines)


def memory(found: dict[str, Any] | None) -> list[str]:
    if not found:
        return []
    embedding = f", {size(found['embedding_bytes'])} for the embedding model" if found["embedding_bytes"] else ""
    return [
        f"memory     {found['where']}: {size(found['kv_bytes'])} for KV, {size(found['weights'])} of weights{embedding}"
    ]


def passages(report: dict[str, Any]) -> list[str]:
    """What the archive gave for this question, the best first."""
    first, *others = (report.get("retrieval_plan") or {}).get("passages") or [""]
    return [f"passages   {first}", *(f"           {place}" for place in others)] if first else []
