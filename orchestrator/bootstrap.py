"""Names and wires every part, once. The only place that knows them all."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from codex.archive.archive import Archive
from codex.catalog.databases import SqliteBytesCache
from codex.catalog.tokens import TokenStore
from codex.library import Library
from codex.searching.neighbourhood import Neighbourhoods
from formatters.registry import Registry, discover
from orchestrator.answering.answer import Answers
from orchestrator.answering.conversations import Conversations, SessionStore
from orchestrator.answering.inference import EngineInference
from orchestrator.answering.preparing import Preparer
from orchestrator.codices.archive import ArchiveIndexer, ArchiveSearch, ArchiveUpkeep
from orchestrator.codices.building import CodexBuilder
from orchestrator.codices.codices import Codices
from orchestrator.codices.faults import translated
from orchestrator.codices.floors import Floors
from orchestrator.codices.freshness import FreshnessGauge
from orchestrator.codices.identities import IdentityFiles, LoadedModel, ServingIdentities
from orchestrator.codices.loads import Loads
from orchestrator.codices.state_store import CodexStateStore
from orchestrator.codices.watching import CodexWatchers
from orchestrator.engine.builtin.files import is_builtin
from orchestrator.model.chat_model import ChatModel
from orchestrator.model.embedding.filling import Filling
from orchestrator.model.embedding.meaning import Meaning
from orchestrator.model.host import Host
from orchestrator.program import AwaitedModel, Operations, Program
from orchestrator.prompt.coverage import Coverage, coverage_named
from orchestrator.reports.about import About
from orchestrator.reports.status import prefill_of
from orchestrator.service import ModelEvent
from orchestrator.settings import parts
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths
from orchestrator.wire.places import VERSION

if TYPE_CHECKING:
    from orchestrator.answering.agent import Answerer

TOKENS_KEPT = 2 * 2**30  # bytes of token ids on disk: half a billion tokens


@dataclass(frozen=True)
class Disk:
    """What lies in files."""

    library: Library
    sessions: SessionStore
    ledger: CodexStateStore
    outlines: SqliteBytesCache
    tokens: TokenStore


Exchange = Callable[[str], AsyncIterator[ModelEvent]]
"""Puts a program with the model of this setting in the place of the one that runs; tells how far it is."""


def build(settings: Settings, paths: Paths, host: Host, exchange: Exchange) -> Program:
    """All parts around `host`, not yet started. Raises LoreError for a folder that cannot be used."""
    archive = Archive(paths.archive)
    meaning = Meaning.of(settings.embedding, host.embedding, host.client, archive, paths.vectors)
    filling = meaning.filling
    disk = disk_of(settings, paths, archive, filling)
    model_ready, loads, registry = AwaitedModel(), Loads(), discover()
    floors = Floors(host.client)
    shelf = codices_of(settings, paths, host, disk, model_ready, floors, loads, ArchiveIndexer(archive).chunks)
    watching = CodexWatchers(disk.library, disk.library.settings.watch, shelf.changed, on=settings.codex.watch)
    tending = ArchiveUpkeep(disk.library, archive, shelf.disk, filling.wanted)
    gauge = FreshnessGauge(shelf, loads, tending, watching)
    blind = joined(gauge.blind, filling.blind)
    searcher = ArchiveSearch(meaning.search, Neighbourhoods(archive), blind, tending.begin, gauge.outdated)

    @cache
    def answerer() -> "Answerer":
        from orchestrator.answering.agent import Answerer, SearchArchive

        return Answerer(SearchArchive(searcher, ModelTokenCounter(model_ready)))

    answers = answers_of(settings, host, disk, shelf, gauge, searcher, answerer, model_ready)
    service = Operations(
        answers=answers,
        about=about_of(paths, host, registry, shelf),
        shelf=shelf,
        search_archive=searcher,
        session_store=disk.sessions,
        machine=host.machine,
        client=host.client,
        watching=watching,
        tending=tending,
        gauge=gauge,
        meaning=meaning,
        model_ready=model_ready,
        exchange=exchange,
    )

    return Program(
        service=service,
        client=host.client,
        machine=host.machine,
        shelf=shelf,
        watching=watching,
        tending=tending,
        meaning=meaning,
        library=disk.library,
        session_store=disk.sessions,
        model_ready=model_ready,
        make_chat_model=lambda: chat_model_of(host, disk, registry, answerer),
        libraries=answerer,
        closing=(disk.tokens.close, disk.outlines.close, archive.close, meaning.close, host.sensors.close),
    )


# -- the parts of it


def codices_of(
    settings: Settings,
    paths: Paths,
    host: Host,
    disk: Disk,
    model_ready: AwaitedModel,
    floors: Floors,
    loads: Loads,
    chunks: Callable[[str], int],
) -> Codices:
    builder = CodexBuilder(
        disk.library, model_ready.now, parts.tier(settings), time.monotonic, disk.outlines, disk.ledger, chunks
    )

    def model() -> LoadedModel:
        loaded = model_ready.now()
        return loaded.info.fingerprint, loaded.tools

    return Codices(
        disk.library,
        builder,
        ServingIdentities(IdentityFiles(paths.identities), disk.ledger, model),
        host.machine,
        floors,
        loads,
        disk.ledger,
        forced_tier(settings),
        host.governor.pressure,
    )


def disk_of(settings: Settings, paths: Paths, archive: Archive, filling: Filling) -> Disk:
    """Raises LoreError for a database that cannot be used."""
    with translated():
        return opened(settings, paths, ArchiveIndexer(archive, filling.wanted, filling.forget))


def opened(settings: Settings, paths: Paths, indexer: ArchiveIndexer) -> Disk:
    tokens = TokenStore(paths.cache / "tokens.sqlite3")
    tokens.trim(TOKENS_KEPT)
    return Disk(
        library=Library(paths.codices, parts.codex(settings), indexer=indexer),
        sessions=SessionStore(paths.sessions),
        ledger=CodexStateStore(paths.codices / "floors.sqlite3"),
        outlines=SqliteBytesCache(paths.cache / "outlines.sqlite3"),
        tokens=tokens,
    )


def answers_of(
    settings: Settings,
    host: Host,
    disk: Disk,
    shelf: Codices,
    gauge: FreshnessGauge,
    searcher: ArchiveSearch,
    answerer: Callable[[], "Answerer"],
    model_ready: AwaitedModel,
) -> Answers:
    model, machine, conversations = host.model, host.machine, Conversations(disk.sessions)
    preparing = Preparer(
        shelf,
        conversations,
        machine,
        searcher,
        host.governor.claims,
        parts.strategy(settings),
        gauge.of,
        greedy=is_builtin(model.setting),
    )
    inference = EngineInference(host.client, lambda: machine.grant)
    return Answers(
        preparing,
        answerer,
        host.client,
        inference,
        model_ready,
        model.setting,
        model.notice,
        gauge.outdated,
    )


def about_of(paths: Paths, host: Host, registry: Registry, shelf: Codices) -> About:
    return About(
        host.model,
        host.machine,
        host.client,
        paths.models,
        host.offload,
        host.governor,
        VERSION,
        lambda floor: prefill_of(shelf, floor),
        registry.failures,
    )


def chat_model_of(host: Host, disk: Disk, registry: Registry, answerer: Callable[[], "Answerer"]) -> ChatModel:
    """Once the model is loaded; a built-in one calls no tools."""
    info = host.client.info
    assert info is not None
    return ChatModel(
        host.client, info, registry, disk.tokens, () if is_builtin(host.model.setting) else answerer().tools
    )


# -- the values they take


def forced_tier(settings: Settings) -> Coverage | None:
    return None if settings.strategy.tier == "auto" else coverage_named(settings.strategy.tier)


def joined(*words: Callable[[str], str]) -> Callable[[str], str]:
    """What each of them says of a name, where it says something."""
    return lambda name: "; ".join(filter(None, (one(name) for one in words)))


class ModelTokenCounter:
    """Counts tokens with the chat model; waits until it is ready."""

    def __init__(self, model_ready: AwaitedModel) -> None:
        self._model_ready = model_ready

    async def count(self, texts: Sequence[str]) -> list[int]:
        return await (await self._model_ready()).tokens.count(texts)
