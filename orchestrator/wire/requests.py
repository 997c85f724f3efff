"""Bodies of the routes that are our own: load, search, model, rename."""

from typing import Annotated

from pydantic import Field

from orchestrator.wire.chat import Strict


class LoadBody(Strict):
    """POST /v1/codices. Paths are absolute, or git URLs; `wait` holds the stream until the floor stands.

    `more` are further roots of the same codex; `revision` is a branch, tag or commit; `replace` takes a name away from
    another source; `secrets` loads also what looks like one.
    """

    path: str
    name: str | None = None
    more: tuple[str, ...] = ()
    revision: str | None = None
    secrets: bool = False
    replace: bool = False
    watch: bool | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    tier: str | None = None
    dry_run: bool = False
    wait: bool = False


class SearchBody(Strict):
    query: Annotated[str, Field(min_length=1)]
    codex: str | None = None
    n: Annotated[int, Field(ge=1, le=1000)] = 10
    graph: bool = False
    cwd: str = ""


class ModelBody(Strict):
    """PUT /v1/model: a name of `GET /v1/models/local`, a built-in one's, or the absolute path of a GGUF file."""

    model: Annotated[str, Field(min_length=1)]
    stream: bool = False


class RenameBody(Strict):
    name: Annotated[str, Field(min_length=1)]
