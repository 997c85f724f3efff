"""JSON as this API writes it: plain ASCII, so that names which are not UTF-8 on disk survive the way."""

import json
from typing import Any

from starlette.responses import JSONResponse


def packed(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


class Reply(JSONResponse):
    def render(self, content: Any) -> bytes:
        return packed(content)
