"""The line under an answer, and what somebody may want to act on below it. Pure."""

from collections.abc import Collection
from typing import Any

from orchestrator.cli.terminal import count, duration, listed, plural, seconds, sooner
from orchestrator.wire.places import IN_SHORT, QUOTER, QUOTING_SHORT

LONG_WAIT_S = 5.0  # a shorter wait is over before it is read
WAITS = {
    "model": "loading the model",
    "gist": "condensing older turns",
    "floor": "computing the codex",
    "prompt": "computing the prompt",
}
WAITED = {"pause_ms": "paused", "model_ms": WAITS["model"], "queue_ms": "in the queue", "floor_ms": WAITS["floor"]}
CITED = 3  # places in the line under an answer
LEAST_DECODED_S, LEAST_DECODED = 0.2, 8  # a rate of fewer is noise: seconds behind the first token, and tokens


def answer_footer(lore: dict[str, Any], seen: Collection[str] = (), *, named: bool = False) -> list[str]:
    """One line, and one more for each thing that somebody may want to act on. From an answer's lore object; what is missing
    in it is left out. Notices that who reads has `seen` are counted; of the model's its name is enough. `named`: who asked
    named the session."""
    if not lore:
        return []
    notice = notice_of(lore)
    known = bool(notice) and notice in seen
    told = dict.fromkeys(filter(None, lore.get("notices", ())))
    before = sum(one in seen for one in told)
    parts = [
        codex_part(lore.get("codex")),
        strategy_part(lore.get("strategy", {})) if lore.get("codex") else "",  # without one there is none to take
        *prompt_parts(lore),
        str(lore.get("model", "")) if known else "",
        f"{plural(before, 'notice')} as before" if before else "",
        cited_part(lore.get("citations", ())),
        session_part(lore, named=named),
        str(lore.get("governor", {}).get("left_out") or ""),
    ]
    lines = [" · ".join(part for part in parts if part)]
    lines += [f"this turn was not saved: {lore['not_kept']}"] if lore.get("not_kept") else []
    lines += censored_lines(lore.get("censored", ()))
    lines += noted_lines(lore.get("noted", ()))
    lines += wrongly_cited(lore.get("citations", ()))
    lines += [one for one in told if one not in seen]
    return [*lines, notice] if notice and not known else lines


def session_part(lore: dict[str, Any], *, named: bool) -> str:
    """'' where it went on without being named: its name was said when it began."""
    name, began = lore.get("session"), lore.get("began")
    if not name or lore.get("not_kept"):
        return ""
    if named:
        return f"new session {name}" if began else f"session {name}"
    return f"go on: -s {name}" if began else ""


def notice_of(lore: dict[str, Any]) -> str:
    """What must be known of the model that answered, in short: `lore status` and `lore doctor` say it in full."""
    notice = str(lore.get("notice") or "")
    if not str(lore.get("model", "")).startswith(QUOTER):
        return notice
    return "; ".join(IN_SHORT.get(one, one) for one in notice.split("; ")) if notice else QUOTING_SHORT


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
    name, coverage = strategy.get("name", ""), strategy.get("tier", "")
    return f"{name} ({coverage})" if name and coverage else name


def prompt_parts(lore: dict[str, Any]) -> list[str]:
    prompt = lore.get("prompt", {})
    timings = lore.get("timings", {})
    parts = [
        f"{count(prompt.get('cached', 0))} tokens cached, {count(prompt.get('computed', 0))} computed{sooner(prompt)}"
    ]
    if timings.get("ttft_ms"):
        parts.append(f"first token {seconds(timings['ttft_ms'])}{long_waits(timings)}")
    if rate := rate_of(timings):
        parts.append(f"{rate:.1f} tokens/s")
    return parts


def long_waits(timings: dict[str, Any]) -> str:
    """` (12 s in the queue, 31 s computing the codex)`; '' where nothing was waited for."""
    waits = {what: timings.get(name, 0.0) / 1000 for name, what in WAITED.items()}
    words = listed(*(f"{duration(amount)} {what}" for what, amount in waits.items() if amount >= LONG_WAIT_S))
    return f" ({words})" if words else ""


def rate_of(timings: dict[str, Any]) -> float:
    """Tokens of the answer a second; 0 where so few were generated that it is noise."""
    rate: float = timings.get("tokens_per_second") or 0.0
    took = (timings.get("total_ms", 0.0) - timings.get("ttft_ms", 0.0)) / 1000
    return rate if took >= LEAST_DECODED_S and rate * took >= LEAST_DECODED else 0.0


def censored_lines(marks: Any) -> list[str]:
    """What goes against a censor, with its passage, and how to say that it is a false alarm."""
    words = {"warn": "warning", "block": "blocked"}
    return [
        f"{words.get(one['severity'], one['severity'])}: the {one['watches']} goes against {first_line(one['text'])!r}: "
        f"{one['passage']} · false alarm: lore memory rate {one['id']} down"
        for one in marks
    ]


def noted_lines(noted: Any) -> list[str]:
    """What was remembered of the turn, each with what undoes or keeps it."""
    return [f"{noted_as(one)} {one['kind']}: {first_line(one['text'])} · {done_with(one)}" for one in noted]


def noted_as(one: dict[str, Any]) -> str:
    if one.get("suggested"):
        return f"proposed outcome {one['suggested']} of"
    return "proposed" if one["state"] == "proposed" else "noted" if one["made"] else "confirmed"


def done_with(one: dict[str, Any]) -> str:
    if one["state"] == "proposed" or one.get("suggested"):
        return f"keep it: lore memory confirm {one['id']}"
    return f"undo: lore memory forget {one['id']}" if one["made"] else f"lore memory show {one['id']}"


def first_line(text: str) -> str:
    line, more, _ = text.partition("\n")
    return f"{line} …" if more else line


def citation_lines(citations: Any) -> list[str]:
    """Each place once; the fault of one follows it."""
    shown = [f"{place} ({wrong})" if wrong else place for place, wrong in places_of(citations).items()]
    return [f"cites {', '.join(shown)}"] if shown else []


def cited_part(citations: Any) -> str:
    """The first places that are right; the answer itself names the others."""
    right = [place for place, wrong in places_of(citations).items() if not wrong]
    more = f" and {len(right) - CITED} more" if len(right) > CITED else ""
    return f"cites {', '.join(right[:CITED])}{more}" if right else ""


def wrongly_cited(citations: Any) -> list[str]:
    return [f"cites {place} wrongly: {wrong}" for place, wrong in places_of(citations).items() if wrong]


def places_of(citations: Any) -> dict[str, str]:
    """What is wrong with each place, '' where nothing is."""
    return {f"{cited['path']}:{cited['start']}": wrong_with(cited) for cited in citations}


def wrong_with(cited: dict[str, Any]) -> str:
    return "" if cited.get("valid") else str(cited.get("why") or "not there")
