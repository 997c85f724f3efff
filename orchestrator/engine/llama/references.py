"""What a reference within a JSON schema leads to. Knows no keyword but its path."""

from typing import Any

from orchestrator.engine.backend import SchemaRefused


def target(root: Any, reference: str) -> dict[str, Any]:
    """Raises SchemaRefused where it leads nowhere, or to what is no schema."""
    found = root
    for name in reference.partition("#")[2].split("/")[1:]:
        if not isinstance(found, dict) or name not in found:
            raise SchemaRefused(f"no grammar can be made of the reference {reference!r}: it leads nowhere")
        found = found[name]
    if not isinstance(found, dict):
        raise SchemaRefused(f"no grammar can be made of the reference {reference!r}: no JSON schema is there")
    return found
