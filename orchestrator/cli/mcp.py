"""`lore mcp`: the daemon as a server of the Model Context Protocol, on standard input and output.

A thin client: each call is one request of the daemon's, on a connection of its own, in a thread of its own. A call that is
cancelled closes its connection, and so does a client that leaves; the daemon ends what such a request runs. Nothing is kept
between calls, so a daemon may start, stop and start again meanwhile.

The protocol is its makers' library (`mcp`), imported when the command runs: both the handshake and the revision without one
(2026-07-28). What the tools do is in `mcp_tools`.
"""

import gc
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from orchestrator.cli import INTERRUPTED
from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon, Failure
from orchestrator.cli.commands import LEFT
from orchestrator.cli.mcp_tools import INSTRUCTIONS, TOOLS, Said, answer, resource, resources
from orchestrator.wire import faults
from orchestrator.wire.places import VERSION

if TYPE_CHECKING:
    from mcp import types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    Context = ServerRequestContext[Any]

T = TypeVar("T")
PLAIN = "text/plain"
Codex = Annotated[str | None, given.option("-c, --codex NAME", f"for calls that name none: {given.WHICH}")]


def mcp(codex: Codex = None, socket: given.Socket = None) -> None:
    """Serves other agents on standard input and output, by the Model Context Protocol."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))  # a thread waits for input: nothing else ends that
    gc.disable()  # the library makes 116,000 objects that stay: looking through them is a fifth of its import
    import anyio
    from mcp.server.stdio import stdio_server

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="lore mcp: %(message)s")
    server = Agents(socket, codex).server()
    gc.freeze()
    gc.enable()

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    Thread(target=leave_with_reader, args=(os.dup(sys.stdout.fileno()),), daemon=True).start()
    try:
        anyio.run(serve)
    except* ConnectionError:  # the same, noticed by a write
        os._exit(LEFT)


def leave_with_reader(output: int) -> None:
    """Ends the process when nobody reads its output any more: the library would wait for a next line of its input."""
    watched = select.poll()
    watched.register(output, 0)  # errors and hang-ups are always told
    watched.poll()
    os._exit(LEFT)


class Agents:
    """What an agent may ask for, of the daemon at `socket`; `codex` is meant where a call names none."""

    def __init__(self, socket: str | None, codex: str | None) -> None:
        self.socket = socket
        self.codex = codex

    def server(self) -> "Server":
        from mcp.server.lowlevel import Server

        return Server(
            "lorekeep",
            version=VERSION,
            instructions=INSTRUCTIONS,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_read_resource=self.read_resource,
        )

    async def list_tools(self, _: "Context", __: Any) -> "types.ListToolsResult":
        from mcp import types

        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.says,
                    input_schema=tool.schema,
                    annotations=None if tool.changes else types.ToolAnnotations(read_only_hint=True),
                )
                for tool in TOOLS.values()
            ]
        )

    async def call_tool(self, context: "Context", asked: "types.CallToolRequestParams") -> "types.CallToolResult":
        """A fault is the tool's answer, with what to do: an agent reads that, and shows a protocol's error to nobody."""
        from mcp import types
        from mcp.shared.exceptions import MCPError

        tool = TOOLS.get(asked.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"no tool {asked.name!r}; there are {', '.join(TOOLS)}")
        try:
            text = await self.asked(
                lambda daemon: answer(tool, daemon, asked.arguments or {}, self.codex, reports_to(context))
            )
        except Failure as failure:
            return types.CallToolResult(content=[types.TextContent(text=words_of(failure))], is_error=True)
        return types.CallToolResult(content=[types.TextContent(text=text)])

    async def list_resources(self, _: "Context", __: Any) -> "types.ListResourcesResult":
        from mcp import types

        with told():
            found = await self.asked(resources)
        listed = [types.Resource(uri=one.uri, name=one.name, description=one.says, mime_type=PLAIN) for one in found]
        return types.ListResourcesResult(resources=listed)

    async def read_resource(self, _: "Context", asked: "types.ReadResourceRequestParams") -> "types.ReadResourceResult":
        from mcp import types

        with told():
            text = await self.asked(lambda daemon: resource(daemon, asked.uri))
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=asked.uri, mime_type=PLAIN, text=text)]
        )

    async def asked(self, ask: Callable[[Daemon], T]) -> T:
        """What `ask` gives, in a thread; when this is cancelled the daemon's request ends. Raises Failure."""
        import anyio.to_thread

        call = DaemonCall(self.socket)
        try:
            return await anyio.to_thread.run_sync(partial(call.run, ask), abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            call.leave()
            raise


class DaemonCall:
    """One request of the daemon's, from a thread; another may leave it at any moment."""

    def __init__(self, socket: str | None) -> None:
        self._socket = socket
        self._daemon: Daemon | None = None
        self._left = False

    def run(self, ask: Callable[[Daemon], T]) -> T:
        self._daemon = Daemon(self._socket)
        if self._left:  # while it connected
            self._daemon.leave()
        try:
            return ask(self._daemon)
        finally:
            self._daemon.connection.close()

    def leave(self) -> None:
        self._left = True
        if self._daemon is not None:
            self._daemon.leave()


@contextmanager
def told() -> Iterator[None]:
    """A fault as the protocol's error: a resource has no other place for it."""
    from mcp import types
    from mcp.shared.exceptions import MCPError

    try:
        yield
    except Failure as failure:
        missing = failure.status == faults.NOT_FOUND
        raise MCPError(types.INVALID_PARAMS if missing else types.INTERNAL_ERROR, words_of(failure)) from failure


def reports_to(context: "Context") -> Said:
    """Progress from a thread to the agent; it goes nowhere where the agent did not ask for it."""
    from anyio.from_thread import run

    def said(done: float, total: float | None, words: str) -> None:
        run(context.session.report_progress, done, total, words)

    return said


def words_of(failure: Failure) -> str:
    return "\n".join(filter(None, (failure.message, failure.hint)))
