"""POST /v1/embeddings, as OpenAI's clients ask for it."""

import base64
import struct
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from orchestrator.api.replies import Reply
from orchestrator.api.requests import parsed, permitted, service_of
from orchestrator.api.streams import while_connected
from orchestrator.errors import InvalidRequest
from orchestrator.service import Embedded
from orchestrator.wire.embeddings import EmbeddingsBody


async def embeddings(request: Request) -> Response:
    """Vectors of texts, by the embedding model of the settings; `cut`: tokens of each text that did not fit its window."""
    principal = permitted(request, "query")
    body = await parsed(request, EmbeddingsBody)
    texts = (body.input,) if isinstance(body.input, str) else body.input
    found = await while_connected(request.receive, service_of(request).embed(principal, texts))
    if body.dimensions not in (None, found.dimensions):
        raise InvalidRequest(
            f"{found.model} gives {found.dimensions} dimensions, not {body.dimensions}", "leave out `dimensions`"
        )
    return Reply(written(found, body.encoding_format))


def written(found: Embedded, encoding: str) -> dict[str, Any]:
    rows = [found.vectors[at : at + 4 * found.dimensions] for at in range(0, len(found.vectors), 4 * found.dimensions)]
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": number, "embedding": encoded(row, encoding)}
            for number, row in enumerate(rows)
        ],
        "model": found.model,
        "usage": {"prompt_tokens": sum(found.tokens), "total_tokens": sum(found.tokens)},
        "lore": {"cut": list(found.cut)},
    }


def encoded(row: bytes, encoding: str) -> str | list[float]:
    return base64.b64encode(row).decode() if encoding == "base64" else list(struct.unpack(f"<{len(row) // 4}f", row))
