"""`lore plan`: everything decided for a question, and nothing run; its page is pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from orchestrator.cli import options as given
from orchestrator.cli.ask import UNSAID, AskOptions, Question, body_of, codex_part, with_ask_options
from orchestrator.cli.client import Daemon, told_of_waiting
from orchestrator.cli.terminal import Report, count, facts, kv_loss, output, result, seconds, size, sooner, table

Prompt = Annotated[bool, given.option("--prompt", "print the exact text that the engine would get")]
BAR = 20  # the widest, in characters
NAMES = 8  # of a question, on its page
SERVER = "the server"  # where the memory is, where one computes


@with_ask_options
def plan(
    question: Question = None,
    options: AskOptions = UNSAID,
    prompt: Prompt = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Shows what would be sent for a question, what of it is cached, and why."""
    body = {**body_of(question, options), "prompt": prompt}
    with told_of_waiting(socket):
        report = Daemon(socket).call("POST", "/v1/plan", body)
    if prompt and not as_json:
        result(report.get("text", ""), end="")
    else:
        output(report, plan_page, as_json=as_json)


def plan_page(report: Report) -> str:
    parts = [refused(report.get("refusal")), decision(report), blocks(report.get("blocks", [])), facts(numbers(report))]
    if broke := left_cached(report):
        parts.append(f"left the cached prompt in {broke}")
    first, *others = (report.get("retrieval_plan") or {}).get("passages") or [""]  # of the archive, the best first
    parts.append(facts([("passages", first), *(("", place) for place in others)]))
    parts.append(memories(report))
    parts.append((report.get("prefetch") or {}).get("report", ""))
    actions = (report.get("governor") or {}).get("actions", ())
    parts += [notice for notice in report.get("notices", ()) if notice not in actions]
    return "\n\n".join(filter(None, parts))


def left_cached(report: Report) -> str:
    """`karma, at frame: changed to debug`: where a prompt left what was cached, and why; '' where it did not."""
    broke = report.get("broke_at")
    return f"{broke.get('block')}, at {broke.get('item')}: {broke.get('why')}" if broke else ""


def refused(refusal: Report | None) -> str:
    return f"lore ask refuses this: {refusal['message']}\n  {refusal['hint']}".rstrip() if refusal else ""


def decision(report: Report) -> str:
    strategy = report.get("strategy", {})
    lines = [
        codex_part(report.get("codex")),
        f"{strategy.get('name', '')}: coverage {strategy.get('tier', '')}, retrieval {strategy.get('retrieval', '')}, "
        f"task {strategy.get('task', '')}, confidence {strategy.get('confidence', 0):.2f}",
        f"  {strategy.get('reason', '')}",
        *(f"  {number}. {step}" for number, step in enumerate(strategy.get("steps", ()), start=1)),
    ]
    return "\n".join(line for line in lines if line.strip())


def memories(report: Report) -> str:
    """What kind of question it is, what it may bring from the memories, and those in the prompt, each with its id."""
    intent, plan = report.get("intent") or {}, report.get("retrieval_plan") or {}
    if not intent.get("frame"):
        return ""
    first, *others = [f"{one['id']} {one['kind']}: {one['text']}" for one in report.get("memories", ())] or ["none"]
    known = [("intent", intent_line(intent)), ("recall", recall_line(plan)), ("memories", first)]
    return facts([*known, *(("", line) for line in others)])


def intent_line(intent: Report) -> str:
    """The frame, and what else the words say."""
    parts = [
        f"frame {intent['frame']}",
        "a greeting" if intent.get("greeting") else "",
        f"about {', '.join(hints)}" if (hints := by_weight(intent.get("hints") or {})) else "",
        f"recency {recency}" if (recency := intent.get("recency")) else "",
        f"names {names_of(names)}" if (names := intent.get("entities")) else "",
    ]
    return "; ".join(filter(None, parts))


def names_of(names: Sequence[str]) -> str:
    more = len(names) - NAMES
    return ", ".join(names[:NAMES]) + (f" and {count(more)} more" if more > 0 else "")


def by_weight(hints: Mapping[str, float]) -> list[str]:
    """Kinds, the most hinted one first."""
    return sorted(hints, key=lambda kind: -hints[kind])


def recall_line(plan: Report) -> str:
    """Most memories of each kind, and most tokens; a kind without tokens is not looked for."""
    tokens = plan.get("memory_tokens") or {}
    kinds = [(kind, most) for kind, most in (plan.get("memories") or {}).items() if most and tokens.get(kind)]
    listed = (f"{most} {kind}{'s' * (most > 1)} ({count(tokens[kind])} tokens)" for kind, most in kinds)
    return f"at most {', '.join(listed)}" if kinds else "nothing is looked for"


def blocks(given: Sequence[Report]) -> str:
    longest = max((block["tokens"] for block in given), default=0)
    rows = [
        (block["kind"], count(block["tokens"]), count(block["cached"]), origin(block), bar(block, longest))
        for block in given
    ]
    return table(("block", "tokens", "cached", "from", ""), rows)


def origin(block: Report) -> str:
    """Where most of it comes from; nothing comes from anywhere into an empty one."""
    return str(block.get("from", "")) if block["tokens"] else "empty"


def bar(block: Report, longest: int) -> str:
    """Full where cached, light where it will be computed."""
    width = round(BAR * block["tokens"] / longest) if longest else 0
    full = round(width * block["cached"] / block["tokens"]) if block["tokens"] else 0
    return "█" * full + "░" * (width - full)


def numbers(report: Report) -> Iterator[tuple[str, str]]:
    prompt, strategy, governor = (report.get(part, {}) for part in ("prompt", "strategy", "governor"))
    cached = f"{count(prompt.get('cached', 0))} cached, {count(prompt.get('computed', 0))} to compute{sooner(prompt)}"
    yield "prompt", f"{count(prompt.get('tokens', 0))} tokens: {cached}"
    answer = strategy.get("used_tokens", 0) - prompt.get("tokens", 0)
    left = f"{count(answer)} for the answer, {count(strategy.get('available_tokens', 0))} left"
    yield "window", f"{count(strategy.get('window', 0))} tokens: {count(prompt.get('tokens', 0))} of the prompt, {left}"
    if memory := report.get("memory"):
        yield "", f"at most {count(memory['window'])} tokens: {memory['bound_reason']}"
    budget = f"{size(governor.get('kv_bytes', 0))} of KV, budget {count(governor.get('budget_tokens', 0))} tokens"
    yield "governor", f"{governor.get('level', '')}, {budget}"
    for action in governor.get("actions", ()):
        yield "", action
    if memory and memory["where"] == SERVER:
        yield "memory", "the server's: what of the prompt is in its cache is told from what was sent to it"
    elif memory:
        held = f"{size(memory['kv_bytes'])} for KV, {size(memory['weights'])} of weights"
        embedding = f", {size(memory['embedding_bytes'])} for the embedding model" if memory["embedding_bytes"] else ""
        yield "memory", f"{memory['where']}: {held}{embedding}"
        if memory.get("kv_loss"):
            yield "", f"KV is kept in {memory['kv_type']}: {kv_loss(memory['kv_loss'])}"
    if (predicted := report.get("predicted") or {}).get("ttft_ms") is not None:
        yield "predicted", f"first token in {seconds(predicted['ttft_ms'])}"
