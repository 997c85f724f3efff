"""`lore plan`: everything decided for a question, and nothing run; its page is pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from orchestrator.cli import options as given
from orchestrator.cli.ask import UNSAID, AskOptions, Question, body_of, with_ask_options
from orchestrator.cli.client import Daemon, told_of_waiting
from orchestrator.cli.footer import codex_part
from orchestrator.cli.terminal import (
    Report,
    count,
    facts,
    kv_loss,
    listed,
    output,
    result,
    seconds,
    size,
    sooner,
    table,
)

Prompt = Annotated[bool, given.option("--prompt", "print the exact text that the engine would get")]
BAR = 20  # the widest, in characters
NAMES = 8  # of a question, on its page
TOLD_FROM = 0.3  # of the room for memories: below it all that is found has room
STRATEGIES = {
    "CAG": "the files are in the prompt, and nothing is searched",
    "HYBRID": "files are in the prompt, and the archive is searched for what they do not tell",
    "RAG": "passages are searched for in the archive",
    "RAG+GRAPH": "passages are searched for in the archive, and along the symbols in them",
    "NONE": "the model answers without a codex",
}
TASKS = {  # what a question asks for, as its words say
    "rag_critical": "asks for facts, which are looked up",
    "stuff_friendly": "asks for a text, which all of the code helps with",
    "hybrid": "asks for an explanation",
}
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
    """What it costs comes first; then of what parts the prompt is, how it is answered, what was found, and the machine."""
    parts = [
        refused(report.get("refusal")),
        codex_part(report.get("codex")),
        facts(numbers(report)),
        blocks(report.get("blocks", [])),
        f"left the cached prompt in {broke}" if (broke := left_cached(report)) else "",
        facts(decision(report)),
        facts(memories(report)),
        facts(machine(report)),
    ]
    actions = (report.get("governor") or {}).get("actions", ())
    parts += [notice for notice in report.get("notices", ()) if notice not in actions]
    return "\n\n".join(filter(None, parts))


def left_cached(report: Report) -> str:
    """`karma, at frame: changed to debug`: where a prompt left what was cached, and why; '' where it did not."""
    broke = report.get("broke_at")
    return f"{broke.get('block')}, at {broke.get('item')}: {broke.get('why')}" if broke else ""


def refused(refusal: Report | None) -> str:
    return f"lore ask refuses this: {refusal['message']}\n  {refusal['hint']}".rstrip() if refusal else ""


def decision(report: Report) -> Iterator[tuple[str, str]]:
    """How the question gets at what the prompt does not hold, why so, and the passages of the archive, the best first."""
    strategy, intent = report.get("strategy", {}), report.get("intent") or {}
    if not strategy:
        return
    name, words = str(strategy.get("name", "")), STRATEGIES.get(str(strategy.get("name", "")), "")
    coverage = f" (coverage {strategy.get('tier')})" if report.get("codex") else ""
    yield "strategy", f"{name}{coverage}: {words}" if words else f"{name}{coverage}"
    clauses = str(strategy.get("reason", "")).removeprefix(f"{name}, because ").split("; ")
    first, *others = [one for one in clauses if not one.startswith("task ")]
    yield "why", first
    yield from (("", one) for one in others)
    if asks := TASKS.get(intent.get("task", "")):
        yield "", f"the question {asks}" + (f": {because!r}" if (because := intent.get("because")) else "")
    yield from headed("steps", [f"{number}. {step}" for number, step in enumerate(strategy.get("steps", ()), start=1)])
    yield from headed("passages", (report.get("retrieval_plan") or {}).get("passages") or ())


def headed(name: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The name before the first of them; nothing without lines."""
    yield from ((name if not at else "", line) for at, line in enumerate(lines))


def memories(report: Report) -> Iterator[tuple[str, str]]:
    """Those in the prompt, each with its id; what was looked for, and by what in the question."""
    intent, plan = report.get("intent") or {}, report.get("retrieval_plan") or {}
    if not intent.get("frame"):
        return
    yield from shown_memories(report, "none")
    yield "", recall_line(plan)
    yield "", intent_line(intent)
    yield "", room_line(report.get("prefetch") or {})


def shown_memories(report: Report, none: str) -> Iterator[tuple[str, str]]:
    """Those in the prompt, each with its id."""
    found = [f"{one['id']} {one['kind']}: {one['text']}" for one in report.get("memories", ())]
    yield from headed("memories", found or [none])


def intent_line(intent: Report) -> str:
    """What the question was taken for, and what else its words say; '' for a plain one."""
    frame = intent["frame"]
    parts = [
        "a greeting" if intent.get("greeting") else "",
        f"about {', '.join(hints)}" if (hints := by_weight(intent.get("hints") or {})) else "",
        f"of late ({recency})" if (recency := intent.get("recency")) else "",
        f"names {names_of(names)}" if (names := intent.get("entities")) else "",
    ]
    words = "; ".join(filter(None, parts))
    if frame == "question":
        return f"of the question's words: {words}" if words else ""
    return f"the question was taken for: {frame}" + (f"; {words}" if words else "")


def room_line(prefetch: Report) -> str:
    """How full the part of the window is that memories share; '' where there is much room."""
    pressure, skipped = prefetch.get("pressure") or 0.0, prefetch.get("skipped")
    if pressure < TOLD_FROM and not skipped:
        return ""
    used, bound = (count(prefetch.get(name) or 0) for name in ("used_tokens", "threshold"))
    return (
        f"{100 * pressure:.0f} % of the room beside the codex is used, {used} of {bound} tokens: {prefetch['advice']}"
    )


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
    most_of = (f"{most} {kind}{'s' * (most > 1)} ({count(tokens[kind])} tokens)" for kind, most in kinds)
    return f"looked for: at most {', '.join(most_of)}" if kinds else "nothing is looked for"


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
    """Of the prompt, the wait and the window."""
    prompt, strategy = report.get("prompt", {}), report.get("strategy", {})
    cached = f"{count(prompt.get('cached', 0))} cached, {count(prompt.get('computed', 0))} to compute{sooner(prompt)}"
    yield "prompt", f"{count(prompt.get('tokens', 0))} tokens: {cached}"
    if (predicted := report.get("predicted") or {}).get("ttft_ms") is not None:
        yield "predicted", f"first token in {seconds(predicted['ttft_ms'])}"
    answer = strategy.get("used_tokens", 0) - prompt.get("tokens", 0)
    left = f"{count(answer)} for the answer, {count(strategy.get('available_tokens', 0))} left"
    yield "window", f"{count(strategy.get('window', 0))} tokens: {count(prompt.get('tokens', 0))} of the prompt, {left}"
    if memory := report.get("memory"):
        yield "", f"at most {count(memory['window'])} tokens: {memory['bound_reason']}"


def machine(report: Report) -> Iterator[tuple[str, str]]:
    """The memory, what this prompt takes of it, and what had to go for that."""
    governor, memory = report.get("governor") or {}, report.get("memory")
    if governor:
        kv = f"prompt and answer take {size(governor.get('kv_bytes', 0))} of KV"
        yield "memory", listed(str(governor.get("level", "")), kv)
    for action in governor.get("actions", ()):
        yield "", action
    if memory and memory["where"] == SERVER:
        yield "", "the server's: what of the prompt is in its cache is told from what was sent to it"
    elif memory:
        held = f"{size(memory['kv_bytes'])} for KV, {size(memory['weights'])} of weights"
        embedding = f", {size(memory['embedding_bytes'])} for the embedding model" if memory["embedding_bytes"] else ""
        yield "", f"{memory['where']}: {held}{embedding}"
        if memory.get("kv_loss"):
            yield "", f"KV is kept in {memory['kv_type']}: {kv_loss(memory['kv_loss'])}"
