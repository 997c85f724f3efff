"""The shape of the program: three leaves, one root, an engine that runs alone, a command line that loads nothing heavy.

Imports are read from the sources, so that also those inside functions count; what a process really loads is asked of a
fresh one.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("formatters", "governor", "codex", "orchestrator")

# A room may import itself and these, and nothing else of ours; the longest name that fits a module decides whose it is.
# Each line may name rooms above it only, so no two rooms import each other and nothing calls back up.
ARROWS = """
formatters:
governor:
codex:

engine:              the modules at its root: ports, messages, costs
engine.builtin:
engine.vocab:        engine engine.builtin
engine.llama:        governor engine engine.vocab
engine.cache:        engine
engine.checkpoints:  engine engine.cache
engine.scheduler:    engine engine.cache engine.checkpoints
engine.embedding:    engine engine.llama engine.vocab
engine.remote:       engine engine.llama engine.vocab engine.embedding
engine.child:        engine engine.llama engine.cache engine.checkpoints engine.scheduler engine.embedding engine.remote
engine.client:       engine engine.llama engine.cache engine.embedding

errors:              codex
cancellation:
logs:
wire:
keys:                errors wire
service:             engine wire
prompt:              formatters governor codex engine errors wire
relevance:           formatters codex errors wire prompt
karma:               formatters codex engine errors wire prompt relevance
settings:            formatters governor codex errors wire prompt
instance:            errors settings
plugins:             formatters errors prompt relevance karma settings
systemd:             wire keys settings
machine:             governor engine engine.client errors prompt
model:               formatters governor codex engine engine.builtin engine.client engine.embedding errors keys wire service prompt settings machine
codices:             formatters governor codex engine engine.checkpoints engine.client errors cancellation wire service prompt machine model
waking:              errors machine model codices
answering:           formatters governor codex engine engine.client errors wire service prompt relevance karma machine model codices
reports:             formatters governor codex engine engine.builtin engine.client engine.embedding engine.llama errors wire service prompt relevance karma settings plugins instance machine model codices
records:             wire service prompt relevance karma codices answering reports
program:             codex engine engine.client errors wire service prompt relevance karma machine model codices waking answering records reports
api:                 engine errors cancellation wire service settings instance reports program
preflight:           errors wire relevance settings plugins model api
model_switch:        codex errors wire service settings model codices api program
bootstrap:           formatters codex engine.builtin errors keys wire service prompt relevance karma settings plugins machine model codices waking answering records reports program
daemon:              errors logs wire settings instance systemd model codices api program model_switch bootstrap
cli:                 wire
"""  # noqa: E501 - a table


def table(arrows: str) -> dict[str, tuple[str, ...]]:
    """Full names of the rooms that each room may import."""
    rooms = dict(line.partition(":")[::2] for line in arrows.splitlines() if ":" in line.partition(" ")[0])
    rows = {room: [word for word in words.split() if word in rooms] for room, words in rooms.items()}
    return {"orchestrator": ()} | {full_name(room): tuple(map(full_name, words)) for room, words in rows.items()}


def full_name(room: str) -> str:
    return room if room in OURS else f"orchestrator.{room}"


MAY_IMPORT = table(ARROWS)
# What the command line does without a daemon, be one above all. Imported inside functions; that importing the command
# line loads none of it is asked below.
WITHOUT_DAEMON = (
    "orchestrator.daemon",
    "orchestrator.errors",
    "orchestrator.model",
    "orchestrator.reports",
    "orchestrator.instance",
    "orchestrator.systemd",
    "orchestrator.settings",
    "orchestrator.preflight",
)
ALLOWED = {
    (f"orchestrator.cli.{module}", target)
    for module in ("local", "config", "doctor", "identity", "model", "service", "up")
    for target in WITHOUT_DAEMON
} | {("orchestrator.cli.schema", "orchestrator.api")}  # the routes as they are declared
# Files that the daemon may not read for a user are read by this user's command, with the daemon's own walk and rules.
ALLOWED |= {("orchestrator.cli.sending", target) for target in ("codex", "orchestrator.errors")}

HEAVY = (
    "pydantic_ai",
    "lancedb",
    "pyarrow",
    "llama_cpp",
    "numpy",
    "starlette",
    "uvicorn",
    "tiktoken",
    "tree_sitter",
    "mcp",
)


def sources() -> Iterator[Path]:
    for package in OURS:
        yield from sorted((ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(path: Path) -> str:
    return module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]


def imports(text: str, package: str) -> Iterator[str]:
    """Full names of all modules that a file of `package` imports, wherever in it; relative ones resolved."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names if is_module(f"{origin}.{alias.name}"))


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def inside(module: str, room: str) -> bool:
    return module == room or module.startswith(room + ".")


def room_of(module: str) -> str:
    return max((room for room in MAY_IMPORT if inside(module, room)), key=len)


def breaches(path: Path) -> list[str]:
    module = module_name(path)
    room = room_of(module)
    foreign = {
        imported
        for imported in imports(path.read_text(), package_of(path))
        if imported.partition(".")[0] in OURS
        and room_of(imported) not in (room, *MAY_IMPORT[room])
        and imported != "orchestrator"  # the empty package above a room
        and not any(module == importer and inside(imported, target) for importer, target in ALLOWED)
    }
    return [f"{module} imports {imported}" for imported in sorted(foreign)]


def test_leaves_import_nothing_of_ours_and_rooms_only_what_they_may():
    assert [breach for path in sources() for breach in breaches(path)] == []


def test_a_room_may_import_only_rooms_above_it_in_the_table():
    order = list(MAY_IMPORT)
    assert [
        (room, other) for room in order for other in MAY_IMPORT[room] if order.index(other) >= order.index(room)
    ] == []


def test_no_two_public_classes_have_one_name():
    found: dict[str, list[str]] = {}
    for path in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module_name(path))
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


def test_no_reply_is_a_dictionary():
    """What crosses the socket is a shape of `wire`, returned by whoever reports it. A JSON schema is the client's own."""
    rooms = ("api", "answering", "codices", "program", "reports", "service", "model_switch")
    found = {
        f"{module_name(path)}.{node.name}"
        for path in sources()
        if module_name(path).split(".")[1:2] and module_name(path).split(".")[1] in rooms
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.returns is not None
        and "[str, Any]" in ast.unparse(node.returns)
    }
    assert found == {"orchestrator.api.chat.schema_of"}


def test_the_package_above_the_rooms_is_empty_so_that_importing_a_room_loads_only_it():
    assert list(imports((ROOT / "orchestrator" / "__init__.py").read_text(), "orchestrator")) == []


def loaded_by(statement: str) -> set[str]:
    """Names of the modules that a fresh Python has loaded after `statement`."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("leaf", ["formatters", "governor", "codex"])
def test_a_leaf_loads_without_the_rest(leaf):
    loaded = loaded_by(f"import {leaf}")
    assert not {module for module in loaded if module.partition(".")[0] in OURS and not inside(module, leaf)}


def test_the_command_line_loads_nothing_heavy():
    modules = [module_name(path) for path in sources() if inside(module_name(path), "orchestrator.cli")]
    loaded = loaded_by(f"import {', '.join(modules)}")
    assert not {module for module in loaded if module.partition(".")[0] in HEAVY}
    rooms = {".".join(module.split(".")[:2]) for module in loaded if inside(module, "orchestrator")}
    assert rooms <= {"orchestrator", "orchestrator.cli", "orchestrator.wire"}


def test_the_engines_child_loads_only_the_engine_and_what_reads_a_models_header():
    parts = "child.worker", "llama.backend", "embedding.llama"
    loaded = loaded_by("import " + ", ".join(f"orchestrator.engine.{part}" for part in parts))
    ours = {module for module in loaded if module.partition(".")[0] in OURS}
    assert {module for module in ours if not inside(module, "orchestrator.engine")} == {
        *("orchestrator", "governor", "governor.gguf", "governor.footprint"),
        *("governor.model_shape", "governor.architectures"),
    }
    assert not {module for module in loaded if module.partition(".")[0] in ("pydantic_ai", "lancedb", "starlette")}


def test_the_cells_of_the_engine_know_no_tiers():
    rooms = ",".join(module_name(path) for path in sources() if inside(module_name(path), "orchestrator.engine.cache"))
    assert not {module for module in loaded_by(f"import {rooms}") if inside(module, "orchestrator.engine.checkpoints")}


def test_the_daemon_starts_without_llama_cpp_which_may_abort_and_without_what_a_status_does_not_need():
    loaded = loaded_by(
        "import orchestrator.daemon, orchestrator.bootstrap, orchestrator.model_switch, orchestrator.api.app"
    )
    late = ("llama_cpp", "numpy", "gguf", "lancedb", "pyarrow", "pydantic_ai")
    assert not {module for module in loaded if module.partition(".")[0] in late}


# ---- the rule itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import codex.catalog.tokens", {"codex.catalog.tokens"}),
        ("from governor import __doc__", {"governor"}),
        ("def f():\n    from orchestrator import errors", {"orchestrator", "orchestrator.errors"}),
        ("if TYPE_CHECKING:\n    import formatters", {"formatters"}),
        ("from . import errors", {"orchestrator.engine"}),
        ("from .. import errors", {"orchestrator", "orchestrator.errors"}),
        ("from ..errors import LoreError", {"orchestrator.errors"}),
    ],
)
def test_imports_are_found_wherever_they_stand(text, names):
    assert set(imports(text, package="orchestrator.engine")) == names


def test_the_longest_room_decides():
    assert room_of("orchestrator.engine.scheduler.loop") == "orchestrator.engine.scheduler"
    assert room_of("orchestrator.engine.costs") == "orchestrator.engine"
    assert room_of("orchestrator.prompt.strategy") == "orchestrator.prompt"
