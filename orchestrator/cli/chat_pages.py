"""What the commands of a conversation show; pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.cli.plan import blocks, left_cached, shown_memories
from orchestrator.cli.terminal import Report, count, facts, plural, seconds, sooner

NAMED = 30  # files; more are counted


def help_page(commands: Mapping[str, str]) -> str:
    lines = [f"{name}\n    {meaning}" for name, meaning in commands.items()]
    keys = [
        "Enter asks. Alt-Enter, or a backslash at the end, begins another line. Tab completes.",
        "Ctrl-C cancels an answer, or clears the line. Ctrl-D at an empty line leaves. Ctrl-Z and fg pause it.",
    ]
    return "\n".join([*lines, *keys])


def why(lore: Report) -> str:
    """What the last answer reused, what was computed, and where and why its prompt left what was cached."""
    return "\n\n".join(filter(None, (blocks(lore.get("blocks", ())), facts(reasons(lore)))))


def reasons(lore: Report) -> Iterator[tuple[str, str]]:
    prompt, strategy, timings = (lore.get(part) or {} for part in ("prompt", "strategy", "timings"))
    cached, computed = prompt.get("cached", 0), prompt.get("computed", 0)
    yield "reused", f"{count(cached)} of {plural(prompt.get('tokens', 0), 'token')}"
    yield "computed", f"{count(computed)}{sooner(prompt)}"
    yield "broke at", left_cached(lore) or "nowhere: what is computed is new"
    yield "departed", str((lore.get("departure") or {}).get("why", ""))
    yield "strategy", str(strategy.get("reason", ""))
    if timings.get("ttft_ms"):
        yield "took", f"{seconds(timings['ttft_ms'])} to the first token"


def in_context(lore: Report, files: Report | None, trace: Mapping[str, Any] | None) -> str:
    """The files of the prefix, what else this answer had, and what was left out or shortened, and how."""
    rows = [*of_prefix(files), *of_question(trace), *shown_memories(lore, "")]
    actions = [one for one in (lore.get("governor") or {}).get("actions", ()) if one not in lore.get("notices", ())]
    first, *others = [*actions] or [""]
    left_out = (
        str((lore.get("governor") or {}).get("left_out", "")).removeprefix("left out: ").partition("; lore plan")[0]
    )
    rows += [("left out", left_out or "nothing"), ("how", first), *(("", other) for other in others)]
    return facts(rows)


def of_prefix(files: Report | None) -> Iterator[tuple[str, str]]:
    if files is None:
        yield "codex", "none"
        return
    inside = [one["path"] for one in files["files"]]
    outside = f", {plural(files['outside'], 'file')} outside it" if files["outside"] else ""
    told = (
        f"{files['codex']}, coverage {files['tier']}: {count(len(inside) + files['left_out'])} in the prefix{outside}"
    )
    yield "codex", told
    for path in inside[:NAMED]:
        yield "", path
    if (more := len(inside) + files["left_out"] - NAMED) > 0:
        yield "", f"and {count(more)} more; lore codex show {files['codex']}"


def of_question(trace: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """What stands behind the prefix, by the name that each item of the prompt has."""
    heads = {"environment": "environment", "state": "in session"}
    for block, head in heads.items():
        names = [
            one["name"] for one in (trace or {}).get("prompt", ()) if one["block"] == block and one["name"] != block
        ]
        first, *others = names or [""]
        yield head, first
        yield from (("", other) for other in others)
