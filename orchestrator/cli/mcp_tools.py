"""What `lore mcp` offers to other agents: its tools with their schemas, what each asks the daemon, and its answer in words.

    tool              route                     answer
    ask               /v1/chat/completions      the model's text, then what it rests on
    search            /v1/search                places with their lines
    symbol            /v1/symbols               definitions, callers, callees, ...
    read              /v1/read                  lines of a file, numbered
    plan              /v1/plan                  what `lore plan` shows
    context_strategy  /v1/strategy              whether to read a text whole or to search it
    remember          /v1/memories              a proposal, which the user confirms
    recall            /v1/memories/search       memories in short

Schemas are short: an agent pays for all of them with each request. The daemon checks the values and decides what the
user may do. Knows no protocol: `mcp` speaks it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from orchestrator.cli.ask import ROUTE, Answer, AskOptions, Wait, request, take, working_directory
from orchestrator.cli.client import Daemon, Failure, route_part
from orchestrator.cli.codex import summary, taken_in
from orchestrator.cli.footer import censored_lines, citation_lines, codex_part, strategy_part
from orchestrator.cli.mcp_wire import Said
from orchestrator.cli.memory import cited
from orchestrator.cli.plan import plan_page
from orchestrator.cli.search import hit_text, how_many_hold, none_found, several_meant, symbol_text
from orchestrator.cli.status import notes_of, roots, state
from orchestrator.cli.terminal import Report, count, listed, plural
from orchestrator.wire import faults

# Characters of a result. Claude Code warns of more than 10,000 tokens; code has about 3 characters a token.
MOST = 30_000
INSTRUCTIONS = (
    "A local model that holds codebases (codices) in its cache. `ask` for what needs reading many files; `search` and "
    "`symbol` are exact and fast. Left out, `codex` is that of the working directory."
)
CODICES, MAP = "lore://codices/", "/map"
Arguments = Mapping[str, Any]
TEMPLATES = (
    {"uriTemplate": f"{CODICES}{{name}}", "name": "codex", "description": "what a codex is, how current"},
    {"uriTemplate": f"{CODICES}{{name}}{MAP}", "name": "map", "description": "a line for each of its files"},
)

TEXT, COUNT = {"type": "string"}, {"type": "integer"}
KINDS = {"string": str, "integer": int, "boolean": bool, "array": list}  # how JSON's types come


@dataclass(frozen=True)
class AgentTool:
    """A tool as an agent sees it. `changes`: it writes something that stays."""

    name: str
    says: str
    takes: dict[str, dict[str, Any]]
    needs: str
    run: Callable[[Daemon, Arguments, Said], str]
    changes: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments; without `additionalProperties`, which `asked` refuses by name."""
        return {"type": "object", "properties": self.takes, "required": [self.needs]}


def answer(tool: AgentTool, daemon: Daemon, arguments: Arguments, codex: str | None, said: Said) -> str:
    """The tool's text, cut with a notice. `codex`: where the arguments name none. Raises Failure, also for arguments that
    it does not take."""
    given = {name: value for name, value in arguments.items() if value is not None}  # null: as if it were left out
    if unknown := given.keys() - tool.takes.keys():
        raise Failure(faults.USAGE, f"{tool.name} has no {listed(*sorted(unknown))}", f"it takes {listed(*tool.takes)}")
    if tool.needs not in given:
        raise Failure(faults.USAGE, f"{tool.name} needs {tool.needs}")
    for name, value in given.items():
        if type(value) is not KINDS[tool.takes[name]["type"]]:  # not isinstance: True is an int for Python
            raise Failure(faults.USAGE, f"{tool.name}: {name} is no {tool.takes[name]['type']}")
    return cut(tool.run(daemon, {"codex": codex, **given}, said))


def cut(text: str, most: int = MOST) -> str:
    """At the end of a line, with how much is missing."""
    if len(text) <= most:
        return text
    kept = text[:most].rpartition("\n")[0] or text[:most]
    return f"{kept}\n[cut: {len(text) - len(kept):,} of {len(text):,} characters are not shown; ask for less]"


# -- a question


def ask(daemon: Daemon, asked: Arguments, said: Said) -> str:
    options = AskOptions(codex=asked["codex"], session=asked.get("session"), max_tokens=asked.get("max_tokens", 2048))
    answer, waiting = Answer(), GrowingProgress()
    for event in daemon.stream(ROUTE, {**request(asked["question"], [], options), "stream": True}):
        if event.aside:
            said(*waiting.report(event.data, time.monotonic()))
        else:
            take(answer, event.data, None)
    if not answer.finish_reason:
        raise Failure(faults.FAILED, "the daemon broke off its answer", "ask again")
    return paragraphs("".join(answer.text), "\n".join(rests_on(answer)))


def rests_on(answer: Answer) -> list[str]:
    """What a reader should know of an answer, a line each: less than the footer of `lore ask`, which is for people."""
    lore = answer.lore
    about = [codex_part(lore.get("codex")), strategy_part(lore.get("strategy", {})) if lore.get("codex") else ""]
    lines = [
        "the answer is cut: max_tokens allows more" if answer.finish_reason == "length" else "",
        " · ".join(filter(None, about)),
        *citation_lines(lore.get("citations", ())),
        *censored_lines(lore.get("censored", ())),
        *dict.fromkeys(lore.get("notices", ())),
        str((lore.get("governor") or {}).get("left_out") or "").partition("; lore plan")[0],
        lore.get("notice") or "",
        f"session {lore['session']}" if lore.get("session") else "",
    ]
    return [line for line in lines if line]


@dataclass
class GrowingProgress:
    """Progress of an answer as MCP wants it: a number that grows with every report, over all phases."""

    wait: Wait = field(default_factory=Wait)
    phase: str = ""
    before: float = 0.0  # of the phases that are over
    shown: float = 0.0

    def report(self, aside: Any, now: float) -> tuple[float, float | None, str]:
        at = aside.get("progress", {}) if isinstance(aside, dict) else {}
        if at.get("phase") != self.phase:
            self.phase, self.before = at.get("phase", ""), self.shown
        total = at.get("total") or 0
        self.shown = max(self.before + (at.get("done") or 0), self.shown + 0.01)  # a wait without a count grows too
        return self.shown, self.before + total if total else None, self.wait.line(at, now)


# -- the codex


def search(daemon: Daemon, asked: Arguments, _: Said) -> str:
    report = daemon.call("POST", "/v1/search", {"n": 8, "cwd": working_directory(), **asked})
    hits = [f"{hit['path']}:{hit['start']}-{hit['end']}{hit_text(hit)}" for hit in report["hits"]]
    nothing = "" if hits else f"nothing found for {asked['query']}"
    return paragraphs(nothing, "\n".join(hits), how_many_hold(report["hits"]), *report.get("notices", ()))


def symbol(daemon: Daemon, asked: Arguments, _: Said) -> str:
    what = asked.get("what", "definition")
    report = daemon.call("POST", "/v1/symbols", {"what": what, "cwd": working_directory(), **asked})
    found = "\n".join(symbol_text(one, what) for one in report["symbols"])
    nothing = "" if found else none_found(report, what, asked["name"])
    return paragraphs(nothing, found, several_meant(report, what), *report.get("notices", ()))


def read(daemon: Daemon, asked: Arguments, _: Said) -> str:
    found = daemon.call("POST", "/v1/read", {"cwd": working_directory(), **asked})
    lines = found["text"].split("\n")[:-1]  # not splitlines: a form feed ends no line
    numbered = enumerate(lines, start=found["start"])
    more = f"[lines {found['start']}-{found['end']} of {found['total']:,}]" if found["end"] < found["total"] else ""
    return paragraphs("\n".join(f"{number} {line}" for number, line in numbered), more, *found["notices"])


def plan(daemon: Daemon, asked: Arguments, _: Said) -> str:
    options = AskOptions(codex=asked["codex"])
    return plan_page(daemon.call("POST", "/v1/plan", request(asked["question"], [], options)))


def context_strategy(daemon: Daemon, asked: Arguments, _: Said) -> str:
    found = daemon.call("POST", "/v1/strategy", {**asked, "cwd": working_directory()})
    room = f"window {count(found['window'])} tokens, {count(found['available_tokens'])} left"
    fetched = f"; {count(found['retrieval_budget'])} for what is found" if found["retrieval_budget"] else ""
    return f"{found['name']} (confidence {found['confidence']:.2f}): {found['reason']}\n{room}{fetched}"


# -- resources: the codices


@dataclass(frozen=True)
class Resource:
    """What an agent's user may attach to a conversation. `says`: in one line."""

    uri: str
    name: str
    says: str


def resources(daemon: Daemon) -> list[Resource]:
    """Two for each codex: what it is, and its map."""
    found: list[Resource] = []
    for one in daemon.call("GET", "/v1/codices")["codices"]:
        name = one["name"]
        found.append(Resource(uri_of(name), name, f"the codex of {roots(one)}"))
        found.append(Resource(uri_of(name) + MAP, f"map of {name}", "its files, a line each with what they define"))
    return found


def resource(daemon: Daemon, uri: str) -> str:
    """Its text. Raises Failure for a URI that is none of ours."""
    quoted, _, part = uri.removeprefix(CODICES).partition("/")
    name = unquote(quoted)
    if uri not in (uri_of(name), uri_of(name) + MAP):
        raise Failure(faults.NOT_FOUND, f"no resource {uri}", "resources/list names those that there are")
    route = f"/v1/codices/{route_part(name)}"
    if part:
        return map_page(daemon.call("GET", f"{route}/map?most={MOST}"))
    codex = daemon.call("GET", route)["codex"]
    about = summary(codex, (("taken in", taken_in(codex)), ("state", state(codex))))
    return cut(paragraphs(about, *(codex.get("notices") or ()), *notes_of(codex)))


def map_page(report: Report) -> str:
    more = plural(report["left_out"], "more file") if report["left_out"] else ""
    lines = "\n".join(f"{one['path']}: {one['line']}" for one in report["files"])
    return paragraphs(lines, f"[{more} without a line]" if more else "")


def uri_of(name: str) -> str:
    return CODICES + quote(name, safe="")


# -- memories


def remember(daemon: Daemon, asked: Arguments, _: Said) -> str:
    """A model asks for it, so it is a proposal, as those of our own model are: a file that the agent read may have told it
    to remember something."""
    places = [cited(str(place)) for place in asked.get("cite", ())]
    rest = {name: value for name, value in asked.items() if name != "cite"}
    body = {**rest, "evidence": places, "proposed": True, "cwd": working_directory()}
    memory = daemon.call("POST", "/v1/memories", body)["memory"]
    if memory["state"] != "proposed":
        return f"remembered already, as {memory['id']}"
    return f"proposed as {memory['id']}; the user keeps it with: lore memory confirm {memory['id']}"


def recall(daemon: Daemon, asked: Arguments, _: Said) -> str:
    found = daemon.call("POST", "/v1/memories/search", {"n": 5, "cwd": working_directory(), **asked})["memories"]
    lines = (f"{one['id']} {one['kind']}, {one['state']}: {one['summary']}" for one in found)
    return "\n".join(lines) or "nothing is remembered about it"


def paragraphs(*parts: str) -> str:
    return "\n\n".join(part.rstrip() for part in parts if part.strip())


def described(kind: dict[str, Any], says: str) -> dict[str, Any]:
    return {**kind, "description": says}


def one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def by_name(*tools: AgentTool) -> dict[str, AgentTool]:
    return {tool.name: tool for tool in tools}


TOOLS = by_name(
    AgentTool(
        "ask",
        "Ask the local model a question about a codebase. It has the code in its context and cites path:line.",
        {
            "question": TEXT,
            "codex": TEXT,
            "session": described(TEXT, "goes on with a conversation, or begins it"),
            "max_tokens": COUNT,
        },
        "question",
        ask,
    ),
    AgentTool(
        "search",
        "Find places in a codebase by words, names or meaning. What is in quotes is found as it is.",
        {
            "query": TEXT,
            "codex": TEXT,
            "n": described(COUNT, "most places, default 8"),
            "graph": described({"type": "boolean"}, "add callers and callees"),
        },
        "query",
        search,
    ),
    AgentTool(
        "symbol",
        "Look up a name in the code: where it is defined, what calls it, what it calls.",
        {
            "name": described(TEXT, "Session.get or file.py:Session.get; of outline a path"),
            "what": one_of("definition", "callers", "callees", "implementors", "members", "outline"),
            "codex": TEXT,
        },
        "name",
        symbol,
    ),
    AgentTool(
        "read",
        "Read lines of a file of a codex, as the codex has it; 200 where no end is named.",
        {"path": TEXT, "start": COUNT, "end": COUNT, "codex": TEXT},
        "path",
        read,
    ),
    AgentTool(
        "plan",
        "Show what ask would send for a question: files and memories in the prompt, tokens cached and computed, why.",
        {"question": TEXT, "codex": TEXT},
        "question",
        plan,
    ),
    AgentTool(
        "context_strategy",
        "Should a text be read whole or searched? By its size, the question and the room left in your window.",
        {
            "query": TEXT,
            "char_count": described(COUNT, "of the text"),
            "file_paths": {"type": "array", "items": TEXT},
            "codex": TEXT,
            "model_context_length": described(COUNT, "your window in tokens"),
            "used_tokens": COUNT,
        },
        "query",
        context_strategy,
    ),
    AgentTool(
        "remember",
        "Propose something to remember across conversations; the user confirms it.",
        {
            "text": described(TEXT, "one sentence, true without its context"),
            "kind": one_of("fact", "decision", "procedure"),
            "subject": described(TEXT, "of a fact"),
            "attribute": described(TEXT, "of the subject"),
            "cite": described({"type": "array", "items": TEXT}, "code it is about: PATH:START-END"),
            "codex": TEXT,
        },
        "text",
        remember,
        changes=True,
    ),
    AgentTool(
        "recall",
        "Find what was remembered of this user and codebase.",
        {"query": TEXT, "kind": TEXT, "codex": TEXT, "n": COUNT},
        "query",
        recall,
    ),
)
