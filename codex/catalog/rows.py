"""Rows of the catalog's tables as values, and the statements that several of its methods share. Knows no locks."""

import json
import shlex
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from codex.catalog.generations import Codex
from codex.errors import UnknownCodex
from codex.trees.port import TreeState

CODEX = (
    "SELECT name, source, roots, request, max(number) FROM codex LEFT JOIN generation ON generation.codex = codex.id"
)

# Without statistics SQLite would rather look through a whole generation.
ENTRIES = "SELECT path, digest, size FROM entry INDEXED BY entry_path"


def without(codex: Codex, wanted: int | None) -> str:
    if codex.newest is None:
        return f"codex {codex.name!r} was not loaded to the end; `lore load {shlex.join(codex.roots)}` continues"
    return f"codex {codex.name!r} has no generation {wanted}; its newest is {codex.newest}"


def codex_from(row: tuple[Any, ...]) -> Codex:
    name, source, roots, request, newest = row
    return Codex(name, source, tuple(json.loads(roots)), request, newest)


def state_columns(state: TreeState, skipped: Mapping[str, int], notices: Sequence[str]) -> tuple[Any, ...]:
    return state.branch, state.revision, state.dirty, json.dumps(dict(skipped)), json.dumps(list(notices))


def id_of(database: sqlite3.Connection, name: str) -> int:
    found = database.execute("SELECT id FROM codex WHERE name = ?", (name,)).fetchone()
    if found is None:
        raise UnknownCodex(name, ())
    return int(found[0])


def sweep(database: sqlite3.Connection) -> None:
    database.execute(
        "DELETE FROM content WHERE digest NOT IN (SELECT digest FROM entry) "
        "AND digest NOT IN (SELECT digest FROM known WHERE digest IS NOT NULL) "
        "AND digest NOT IN (SELECT digest FROM amendment WHERE digest IS NOT NULL)"
    )
