"""Which calls an answer may make, of a client's tools and of ours; and the results that a client sends back.

    answer ── calls ──▶ client ── results ──▶ the same turn, reopened: question, calls, results ──▶ answer

A result belongs to a call by its id, in whatever order results come. Pure functions.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from formatters.blocks import Role
from formatters.calls import CallFormat
from formatters.context import CallView, SigilView, ToolView, TurnView
from orchestrator.engine.calling import ArgumentForm, CallForm, OfferedTool, ToolRules
from orchestrator.errors import InvalidRequest
from orchestrator.prompt.filler import cut_text
from orchestrator.prompt.situation import may_use
from orchestrator.service import Ask, Message, ToolCall
from orchestrator.wire.requests import ToolFunction

RESULTS_SHARE = 0.5  # of what a prompt may have beside its fixed parts: what new results get before earlier turns go
ANY_OBJECT = {"type": "object"}
LONGEST_ID, MOST_NAMED = 40, 10  # characters of an id in a sentence, and ids in one
ALL_RESULTS = "send a message with role tool for each of the calls, with its tool_call_id"


# -- which calls


def tool_rules(
    ask: Ask, form: CallFormat, own: Sequence[ToolView], sigil: SigilView, *, thinking: bool = False
) -> ToolRules | None:
    """The calls that an answer may make; None where it is free: nothing may be called. `thinking`: it begins in a thought.

    Ours may be called beside the client's, unless one of the client's must be."""
    choice, theirs = ask.tool_choice, {tool.name: tool for tool in ask.tools}
    required = choice.mode == "required"
    ours = [tool for tool in own if tool.name not in theirs and may_use(sigil, tool.name)]
    wanted = [tool for tool in theirs.values() if choice.mode != "none" and tool.name in (choice.names or theirs)]
    tools = (*map(_offered, wanted), *(() if required and theirs else map(_own, ours)))
    return ToolRules(call_form(form), tools, required, ask.parallel_calls, thinking) if tools else None


def own_rules(form: CallFormat, own: Sequence[ToolView], *, thinking: bool = False) -> ToolRules | None:
    """Those of most answers: all tools are ours, and who asks may use each."""
    return ToolRules(call_form(form), tuple(map(_own, own)), thinking=thinking) if own else None


def last_rules(rules: ToolRules, ask: Ask) -> ToolRules:
    """Those of a turn's last answer, which calls none of our tools; with no tools left it may call nothing."""
    theirs = {tool.name for tool in ask.tools}
    return replace(rules, tools=tuple(one for one in rules.tools if one.name in theirs), required=False)


def call_form(form: CallFormat) -> CallForm:
    """As the engine takes it."""
    style = ArgumentForm(**vars(form.style)) if form.style is not None else None
    return CallForm(form.trigger, form.begin, form.before, form.end, form.between, form.close, style, form.alone)


def _offered(tool: ToolFunction) -> OfferedTool:
    return OfferedTool(tool.name, _schema(tool.parameters), bool(tool.strict))


def _own(tool: ToolView) -> OfferedTool:
    return OfferedTool(tool.name, _schema(tool.parameters_json_schema))


def _schema(parameters: Mapping[str, object] | None) -> str:
    return json.dumps(dict(parameters or ANY_OBJECT))


# -- results that come back


def results_at_end(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The results that a conversation ends with."""
    first = len(messages)
    while first and messages[first - 1].role == "tool":
        first -= 1
    return tuple(messages[first:])


def refuse_strangers(messages: Sequence[Message]) -> None:
    """Raises InvalidRequest for a result of a call that no answer before it made, or that has a result already. A result
    whose answer was left out is left to the session that has it."""
    calls: Collection[str] | None = None
    had = set[str]()
    for one in messages:
        if one.role == "tool" and calls is not None:
            _refuse_stranger(one.tool_call_id, calls, had)
            had.add(one.tool_call_id)
        elif one.role != "tool":
            calls, had = _ids(one.tool_calls if one.role == "assistant" else ()), set()


def answered_calls(since: Sequence[TurnView], results: Sequence[Message]) -> tuple[TurnView, ...]:
    """The results as turns, in the order of the calls that `since`, the turn so far, ends with. Raises InvalidRequest where
    they are not those of these calls."""
    calls = open_calls(since)
    ids, had = _ids(calls), set[str]()
    for one in results:
        _refuse_stranger(one.tool_call_id, ids, had)
        had.add(one.tool_call_id)
    missing = [call for call in calls if call.id not in had]
    if missing:
        words = f"messages: the call {_short(missing[0].id)} of {missing[0].name} has no result"
        raise InvalidRequest(words, ALL_RESULTS)
    texts = {one.tool_call_id: one.content for one in results}
    return tuple(TurnView(role=Role.TOOL, text=texts[call.id], answers=call.id) for call in calls)


def open_calls(since: Sequence[TurnView]) -> tuple[CallView, ...]:
    """Calls of the last answer that have no result yet."""
    answers = set[str]()
    for turn in reversed(since):
        if turn.role is Role.ASSISTANT:
            return tuple(call for call in turn.calls if call.id not in answers)
        answers.add(turn.answers)
    return ()


def _ids(calls: Sequence[ToolCall | CallView]) -> Collection[str]:
    """In their order, and looked up at once: an answer may make thousands of calls, and each result is looked up."""
    return dict.fromkeys(call.id for call in calls).keys()


def _refuse_stranger(result: str, calls: Collection[str], had: set[str]) -> None:
    if result in had:
        raise InvalidRequest(f"messages: the call {_short(result)} has two results", "send one result for each call")
    if result not in calls:
        named = f"the result of the call {_short(result)}" if result else "a result without tool_call_id"
        named_calls = ", ".join([*map(_short, islice(calls, MOST_NAMED)), *["…"] * (len(calls) > MOST_NAMED)])
        known = f"; the answer before it made {named_calls}" if calls else ""
        raise InvalidRequest(f"messages: {named} belongs to no call of the answer before it{known}", ALL_RESULTS)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_ID else f"{name[:LONGEST_ID]}…"


# -- results that are too long


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """What each may have of the room: what is small has all that it needs, and the others the same each."""
    allowed, left = [0] * len(sizes), max(0, room)
    order = sorted(range(len(sizes)), key=lambda at: sizes[at])
    for place, at in enumerate(order):
        allowed[at] = min(sizes[at], left // (len(order) - place))
        left -= allowed[at]
    return allowed


def cut_results(results: Sequence[TurnView], characters: Sequence[int]) -> tuple[TurnView, ...]:
    """The results with so many characters each; a shorter one says so at its end."""
    return tuple(
        one if len(one.text) <= most else one.model_copy(update={"text": cut_text(one.text, most)})
        for one, most in zip(results, characters, strict=True)
    )


def cuts_reported(calls: Sequence[CallView], before: Sequence[int], results: Sequence[TurnView]) -> Iterator[str]:
    """What was cut, in sentences. `before`: characters that the results had."""
    names = {call.id: call.name for call in calls}
    for had, one in zip(before, results, strict=True):
        if len(one.text) < had:
            kept = f"{len(one.text):,} of {had:,} characters"
            yield f"the result of {names.get(one.answers, 'a tool')} was cut to {kept}: the prompt has no room for more"
