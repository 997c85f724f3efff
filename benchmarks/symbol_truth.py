"""What a package defines and calls, by `ast` and `jedi`: run by the Python of a folder of its own that has both.

    python symbol_truth.py ROOT PACKAGE > truth.json

A call is told with the definitions that jedi gives for it; one that jedi cannot follow has none.
"""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jedi  # type: ignore[import-not-found,import-untyped,unused-ignore]

Function = (ast.FunctionDef, ast.AsyncFunctionDef)
Scope = (*Function, ast.ClassDef)


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    project, environment = jedi.Project(root), jedi.InterpreterEnvironment()
    told: dict[str, list[Any]] = {"defined": [], "calls": [], "bases": []}
    for file in sorted((root / sys.argv[2]).rglob("*.py")):
        text, path = file.read_text(encoding="utf-8"), str(file.relative_to(root))
        tree = ast.parse(text)
        script = jedi.Script(text, path=file, project=project, environment=environment)
        told["defined"] += [[path, *one] for one in defined(tree)]
        for caller, line, node in calls(tree):
            told["calls"].append([path, caller, line, node[0], targets(script, root, *node[1:])])
        for holder, line, name, *place in bases(tree):
            told["bases"].append([path, holder, line, name, targets(script, root, *place)])
        print(path, file=sys.stderr, flush=True)
    json.dump(told, sys.stdout)


def targets(script: Any, root: Path, line: int, column: int) -> list[list[Any]]:
    """Path, below the root or absolute, and line of each definition."""
    try:
        names = script.goto(line, column, follow_imports=True)
    except Exception:  # noqa: BLE001 - jedi is foreign, and fails on some code
        return []
    found = []
    for name in names:
        where = Path(name.module_path) if name.module_path is not None else None
        inside = where is not None and where.is_relative_to(root)
        found.append([str(where.relative_to(root) if where and inside else where), name.line, name.type])
    return found


def defined(tree: ast.Module) -> Iterator[list[Any]]:
    """Qualified name, kind, line, and who holds it: definitions, and what a module or a class sets outside of functions."""
    yield from _within(tree.body, [], True)


def _within(body: list[ast.stmt], holders: list[str], named: bool) -> Iterator[list[Any]]:
    seen: set[str] = set()
    for node in statements(body):
        if isinstance(node, Scope):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            yield [".".join([*holders, node.name]), kind, node.lineno, ".".join(holders)]
            yield from _within(node.body, [*holders, node.name], isinstance(node, ast.ClassDef))
        elif named and isinstance(node, ast.Assign | ast.AnnAssign):
            for name in (one for target in goals(node) for one in names_of(target)):
                if name.id not in seen:
                    seen.add(name.id)
                    yield [".".join([*holders, name.id]), "value", name.lineno, ".".join(holders)]


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a body, also within its ifs, loops and tries."""
    for node in body:
        yield node
        if not isinstance(node, Scope):
            for name in ("body", "orelse", "finalbody"):
                yield from statements(getattr(node, name, []))
            for handler in getattr(node, "handlers", []):
                yield from statements(handler.body)


def goals(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def names_of(target: ast.expr) -> list[ast.Name]:
    if isinstance(target, ast.Tuple | ast.List):
        return [name for one in target.elts for name in names_of(one)]
    return [target] if isinstance(target, ast.Name) else []


def calls(tree: ast.Module) -> Iterator[tuple[str, int, tuple[str, int, int]]]:
    """Who calls, at which line, and the name that is called with its place."""
    yield from _calls(tree, [])


def _calls(node: ast.AST, holders: list[str]) -> Iterator[tuple[str, int, tuple[str, int, int]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Scope):
            outside = [*child.decorator_list, *(child.bases if isinstance(child, ast.ClassDef) else [])]
            for one in outside:
                yield from _calls(ast.Expr(one), holders)
                if not isinstance(one, ast.Call) and one in child.decorator_list and (at := place_of(one)):
                    yield ".".join(holders), at[1], at
            inner = [*holders, child.name]
            for name, value in ast.iter_fields(child):
                if name not in ("decorator_list", "bases"):
                    for one in value if isinstance(value, list) else [value]:
                        if isinstance(one, ast.AST):
                            yield from _calls(
                                ast.Module([ast.Expr(one)], []) if isinstance(one, ast.expr) else _held(one), inner
                            )
            continue
        if isinstance(child, ast.Call) and (at := place_of(child.func)):
            yield ".".join(holders), at[1], at
        yield from _calls(child, holders)


def _held(node: ast.AST) -> ast.AST:
    """In a parent of its own, so that it is visited itself."""
    return ast.Module([node], [])  # type: ignore[list-item]


def place_of(func: ast.expr) -> tuple[str, int, int] | None:
    if isinstance(func, ast.Name):
        return func.id, func.lineno, func.col_offset
    if isinstance(func, ast.Attribute) and func.end_lineno is not None and func.end_col_offset is not None:
        return func.attr, func.end_lineno, func.end_col_offset - len(func.attr)
    return None


def bases(tree: ast.Module) -> Iterator[tuple[Any, ...]]:
    for holders, node in _classes(tree, []):
        for base in node.bases:
            at = place_of(base.value if isinstance(base, ast.Subscript) else base)
            if at is not None:
                yield ".".join(holders), node.lineno, *at


def _classes(node: ast.AST, holders: list[str]) -> Iterator[tuple[list[str], ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        inner = [*holders, child.name] if isinstance(child, Scope) else holders
        if isinstance(child, ast.ClassDef):
            yield inner, child
        yield from _classes(child, inner)


if __name__ == "__main__":
    main()
