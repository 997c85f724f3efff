"""Shapes that are read off an object by the names of their fields: no field is left to a default that nobody chose."""

import ast
import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import orchestrator
from codex.citations import CheckedCitation
from codex.graph.symbol_index import FoundSymbol
from codex.progress import CodexProgress
from codex.searching.search import ChunkHit
from codex.vectors.filling import Filled
from governor.budget import MemoryBudget
from governor.readings import GpuReading, HostReading
from orchestrator import wire
from orchestrator.answering.sessions import Session
from orchestrator.codices.floor_archive import Manifest
from orchestrator.codices.reading import LinesOfFile
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.messages import KvChange
from orchestrator.engine.snapshot import CacheBranch, CacheContent, PoolState, ServerState, StepTimes, TicketState
from orchestrator.errors import LoreError
from orchestrator.karma.figures import Measured
from orchestrator.karma.recall import ShownEntry
from orchestrator.karma.records import CodeCitation, MemoryRecord
from orchestrator.machine.machine import Estimate
from orchestrator.machine.yielding import Away
from orchestrator.prompt.prefetch import Prefetch
from orchestrator.prompt.strategy import Decision
from orchestrator.relevance.gate import Relevance
from orchestrator.relevance.ledger import RuleFigures
from orchestrator.reports.models import Fitting, Placement
from orchestrator.reports.recommended import Published
from orchestrator.wire.answers import Lore
from orchestrator.wire.base import ReplyShape

SOURCES: dict[str, object] = {
    "BranchReport": CacheBranch,
    "CacheReport": CacheContent,
    "TicketReport": TicketState,
    "AdvisedModel": Published,
    "AwayReport": Away,
    "Citation": CheckedCitation,
    "CitedCode": CodeCitation,
    "EmbeddingProgress": Filled,
    "EstimateRow": Estimate,
    "EngineReport": EngineClient,
    "FoundMemoryRow": MemoryRecord,
    "GpuSensors": GpuReading,
    "HostSensors": HostReading,
    "ImportedFloor": Manifest,
    "KvLoss": KvChange,
    "MemoryFigure": Measured("", "", None, 0),
    "MemoryView": MemoryRecord,
    "ModelRow": Fitting,
    "NotedMemory": MemoryRecord,
    "PlanMemory": MemoryBudget,
    "PlanReply": Lore,
    "PlannedMemory": MemoryBudget,
    "PoolReport": PoolState,
    "RelevanceReport": Relevance,
    "RuleRow": RuleFigures,
    "ShownMemory": ShownEntry,
    "PrefetchReport": Prefetch,
    "ProgressEvent": CodexProgress,
    "RefusalReport": LoreError(""),  # its attributes are made with it
    "SearchHit": ChunkHit,
    "SessionExport": Session,
    "SessionRow": Session,
    "ServerReport": ServerState,
    "StepReport": StepTimes,
    "StrategyState": Decision,
    "SymbolRow": FoundSymbol,
    "FileLines": LinesOfFile,
    "TemplatePlacement": Placement,
}


class Place(ReplyShape):
    path: str
    why: str = ""


for module in pkgutil.iter_modules(wire.__path__, "orchestrator.wire."):
    import_module(module.name)  # a class is known as a shape once its module has been imported


def below(shape: type[ReplyShape]) -> Iterator[type[ReplyShape]]:
    for one in shape.__subclasses__():
        yield one
        yield from below(one)


def readings() -> Iterator[tuple[str, set[str | None]]]:
    """Every `Shape.of(source, …)` of the program: the shape, and what it is given by name."""
    shapes = {one.__name__ for one in below(ReplyShape)}
    for path in Path(orchestrator.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="of")) if name in shapes:
                    yield name, {one.arg for one in node.keywords}


def names_of(source: object) -> set[str]:
    kind = source if isinstance(source, type) else type(source)
    declared = {name for one in kind.__mro__ for name in inspect.get_annotations(one)}
    return {*dir(source), *declared}


def test_each_field_is_an_attribute_of_its_source_or_given_by_name():
    fields = {one.__name__: set(one.model_fields) for one in below(ReplyShape)}
    found = list(readings())
    assert {name for name, _ in found} == SOURCES.keys()
    assert [(name, given - fields[name]) for name, given in found if given - fields[name]] == []
    lacking = [(name, fields[name] - given - names_of(SOURCES[name])) for name, given in found]
    assert [one for one in lacking if one[1]] == []


def test_a_field_that_neither_has_is_a_fault_and_no_default():
    assert Place.of(CheckedCitation("a.py", 1, 2, "gone")) == Place(path="a.py", why="gone")
    with pytest.raises(AttributeError, match="why"):
        Place.of(Path("a.py"), path="a.py")
