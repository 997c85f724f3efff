"""`lore status`: one page about now."""

from orchestrator.cli import options as given
from orchestrator.cli.connect import daemon
from orchestrator.cli.figures import outline
from orchestrator.cli.terminal import result, result_json


def status(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows model, memory, codices, conversations and queue."""
    report = daemon(socket).call("GET", "/v1/status")
    result_json(report) if as_json else result(outline(report))
