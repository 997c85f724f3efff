"""Bodies of the routes that are our own: load, search, model, rename."""

from typing import Annotated

from pydantic import AfterValidator, Field

from orchestrator.wire.plain import Plain, without_nul
from orchestrator.wire.shapes import Strict


class LoadBody(Strict):
    """What to load, and how."""

    path: Plain = Field(description="a directory or file by its absolute path, or a git URL")
    name: Plain | None = Field(None, description="the codex's name; left out: the path's last part")
    more: tuple[Plain, ...] = Field((), description="further roots of the same codex")
    revision: Plain | None = Field(None, description="a branch, tag or commit instead of the files on disk")
    secrets: bool = Field(False, description="load also what holds or looks like keys and tokens")
    replace: bool = Field(False, description="take the name from the source that has it now")
    watch: bool | None = Field(None, description="follow changes on disk; left out: as wished before, else codex.watch")
    include: tuple[Plain, ...] = Field((), description="take only files that match one of these globs")
    exclude: tuple[Plain, ...] = Field((), description="leave out files that match one of these globs")
    tier: Plain | None = Field(None, description="force full, skeleton+hot, map or none; auto takes that back")
    dry_run: bool = Field(False, description="count and decide, load nothing")
    wait: bool = Field(False, description="hold the stream until the floor stands in the cache")


class SearchBody(Strict):
    """What to look for, and where."""

    query: Annotated[str, Field(min_length=1)] = Field(description="words, names, or a question")
    codex: Plain | None = Field(None, description="the codex by name; left out: by cwd")
    n: Annotated[int, Field(ge=1, le=1000)] = Field(10, description="most hits")
    graph: bool = Field(False, description="add the neighbourhood of what was found: callers, callees, bases")
    cwd: Plain = Field("", description="working directory: the loaded codex that holds it is searched")


class ModelBody(Strict):
    """The model to change to."""

    model: Annotated[str, Field(min_length=1), AfterValidator(without_nul)] = Field(
        description="a name of GET /v1/models/local, a built-in one's, or the absolute path of a GGUF file"
    )
    stream: bool = Field(False, description="tell the steps as server-sent events")


class RenameBody(Strict):
    """A conversation's new name."""

    name: Annotated[str, Field(min_length=1), AfterValidator(without_nul)] = Field(description="free among your own")
