"""`lore mcp`: the daemon as a server of the Model Context Protocol, on standard input and output.

A thin client: each call is one request of the daemon's, on a connection of its own, in a thread of its own. A call that is
cancelled closes its connection, and so does a client that leaves; the daemon ends what such a request runs. Nothing is kept
between calls, so a daemon may start, stop and start again meanwhile.

The protocol is `mcp_wire`'s. What the tools do is in `mcp_tools`.
"""

import os
import select
import sys
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Annotated

from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon, Failure
from orchestrator.cli.commands import LEFT
from orchestrator.cli.mcp_tools import INSTRUCTIONS, TEMPLATES, TOOLS, AgentTool, answer, resource, resources
from orchestrator.cli.mcp_wire import BAD_PARAMS, INTERNAL, Connection, Json, Offer, Refused, Said
from orchestrator.wire import faults
from orchestrator.wire.places import VERSION

PLAIN = "text/plain"
Codex = Annotated[str | None, given.option("-c, --codex NAME", f"for calls that name none: {given.WHICH}")]


def mcp(codex: Codex = None, socket: given.Socket = None) -> None:
    """Serves other agents on standard input and output, by the Model Context Protocol."""
    output = sys.stdout.fileno()
    Thread(target=leave_with_reader, args=(output,), daemon=True).start()
    Connection(Agents(socket, codex).offer(), partial(write, output)).serve(sys.stdin.buffer)


def leave_with_reader(output: int) -> None:
    """Ends the process when nobody reads its output any more, though its input is open."""
    watched = select.poll()
    watched.register(output, 0)  # errors and hang-ups are always told
    watched.poll()
    os._exit(LEFT)


def write(output: int, line: bytes) -> None:
    """Without a buffer: its lock, held by a thread that waits for a reader, would keep Python from ending."""
    rest = memoryview(line)
    try:
        while rest:
            rest = rest[os.write(output, rest) :]
    except ConnectionError:  # the same as above, noticed here
        os._exit(LEFT)


class Agents:
    """What an agent may ask for, of the daemon at `socket`; `codex` is meant where a call names none."""

    def __init__(self, socket: str | None, codex: str | None) -> None:
        self.socket = socket
        self.codex = codex

    def offer(self) -> Offer:
        fixed = {
            "tools/list": {"tools": [listed(tool) for tool in TOOLS.values()]},
            "resources/templates/list": {"resourceTemplates": [{**one, "mimeType": PLAIN} for one in TEMPLATES]},
        }
        works = {
            "tools/call": self.call_tool,
            "resources/list": self.list_resources,
            "resources/read": self.read_resource,
        }
        return Offer("lorekeep", VERSION, INSTRUCTIONS, fixed, works)

    def call_tool(self, params: Json, said: Said) -> "DaemonCall":
        """A fault is the tool's answer, with what to do: an agent reads that, and shows a protocol's error to nobody."""
        tool = TOOLS.get(text_of(params, "name"))
        arguments = params.get("arguments")
        if tool is None:
            raise Refused(BAD_PARAMS, f"no tool {params['name']!r}; there are {', '.join(TOOLS)}")
        if not isinstance(arguments, dict | None):
            raise Refused(BAD_PARAMS, "arguments is no object")

        def ask(daemon: Daemon) -> Json:
            return said_by_tool(answer(tool, daemon, arguments or {}, self.codex, said))

        return DaemonCall(self.socket, ask, lambda failure: said_by_tool(words_of(failure), wrong=True))

    def list_resources(self, _: Json, __: Said) -> "DaemonCall":
        def ask(daemon: Daemon) -> Json:
            found = resources(daemon)
            return {
                "resources": [
                    {"uri": one.uri, "name": one.name, "description": one.says, "mimeType": PLAIN} for one in found
                ]
            }

        return DaemonCall(self.socket, ask, refuse)

    def read_resource(self, params: Json, _: Said) -> "DaemonCall":
        uri = text_of(params, "uri")

        def ask(daemon: Daemon) -> Json:
            return {"contents": [{"uri": uri, "mimeType": PLAIN, "text": resource(daemon, uri)}]}

        return DaemonCall(self.socket, ask, refuse)


def listed(tool: AgentTool) -> Json:
    hints = {} if tool.changes else {"annotations": {"readOnlyHint": True}}
    return {"name": tool.name, "description": tool.says, "inputSchema": tool.schema, **hints}


def text_of(params: Json, name: str) -> str:
    found = params.get(name)
    if not isinstance(found, str):
        raise Refused(BAD_PARAMS, f"{name} is no string")
    return found


def said_by_tool(text: str, *, wrong: bool = False) -> Json:
    return {"content": [{"type": "text", "text": text}], "isError": wrong}


def refuse(failure: Failure) -> Json:
    """A fault as the protocol's error: a resource has no other place for it."""
    missing = failure.status == faults.NOT_FOUND
    raise Refused(BAD_PARAMS if missing else INTERNAL, words_of(failure)) from failure


class DaemonCall:
    """One request of the daemon's, from a thread; another may leave it at any moment. `failed`: the result of a fault."""

    def __init__(self, socket: str | None, ask: Callable[[Daemon], Json], failed: Callable[[Failure], Json]) -> None:
        self._socket = socket
        self._ask = ask
        self._failed = failed
        self._daemon: Daemon | None = None
        self._left = False

    def run(self) -> Json:
        try:
            self._daemon = Daemon(self._socket)
            if self._left:  # while it connected
                self._daemon.leave()
            try:
                return self._ask(self._daemon)
            finally:
                self._daemon.connection.close()
        except Failure as failure:
            return self._failed(failure)

    def leave(self) -> None:
        self._left = True
        if self._daemon is not None:
            self._daemon.leave()


def words_of(failure: Failure) -> str:
    return "\n".join(filter(None, (failure.message, failure.hint)))
