"""`lore dash`: what the daemon does, as a page in a browser. What it serves is imported when it runs."""

from typing import Annotated

from orchestrator.cli import options as given

Port = Annotated[int, given.option("--port N", "serve on this port (left out: a free one)", min=0, max=65535)]


def dash(port: Port = 0, socket: given.Socket = None) -> None:
    """Serves a page about now on 127.0.0.1, and prints its address; Ctrl-C ends it.

    The address holds a token: who has it sees what you may see. For a daemon on another machine: lore dash --port 8765
    there, ssh -L 8765:127.0.0.1:8765 HOST here, and the address that was printed there.
    """
    import asyncio

    from orchestrator.cli.dash_site import serve

    asyncio.run(serve(port, socket))
