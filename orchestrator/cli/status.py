"""`lore status`: one page about now."""

from orchestrator.cli import options as given
from orchestrator.cli.connect import daemon
from orchestrator.cli.terminal import result, result_json


def status(as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Shows model, memory, codices, conversations and queue."""
    report = daemon(socket).call("GET", "/v1/status")
    if as_json:
        result_json(report)
        return
    from orchestrator.cli.status_page import page

    result(page(report))
