"""Names and wires every part, once. The only place that knows them all."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from codex.archive.archive import Archive
from codex.archive.remote import Remote
from codex.catalog.databases import SqliteBytesCache
from codex.catalog.tokens import TokenStore
from codex.library import Library
from codex.searching.neighbourhood import Neighbourhoods
from codex.vectors.index import VectorIndex
from formatters.plugins import ContextNode
from formatters.registry import Registry
from orchestrator.answering.answer import Answers
from orchestrator.answering.client_tools import own_rules
from orchestrator.answering.clients import ClientLedger
from orchestrator.answering.conversations import Conversations
from orchestrator.answering.inference import Inference
from orchestrator.answering.plain_texts import PlainTexts
from orchestrator.answering.preparing import Preparer
from orchestrator.answering.sessions import SessionStore
from orchestrator.answering.tending import Tending
from orchestrator.answering.traces import TraceKeeper, TraceStore
from orchestrator.codices.archive import ArchiveIndexer, ArchiveSearch, ArchiveUpkeep
from orchestrator.codices.building import CodexBuilder
from orchestrator.codices.floor_files import FloorFiles
from orchestrator.codices.floors import Floors
from orchestrator.codices.freshness import CodexWatchers, FreshnessGauge
from orchestrator.codices.identities import Identities
from orchestrator.codices.lifecycle import CodexLifecycle
from orchestrator.codices.loading import CodexLoader
from orchestrator.codices.loads import Loads
from orchestrator.codices.maps import CodexMaps
from orchestrator.codices.reading import CodexFiles
from orchestrator.codices.report import CodexReports
from orchestrator.codices.resident import ResidentCodices
from orchestrator.codices.serving_identities import IdentityFiles, ServingIdentities
from orchestrator.codices.state_store import STATES, CodexStateStore
from orchestrator.codices.successors import Successors
from orchestrator.codices.symbols import CodexSymbols
from orchestrator.engine.builtin.files import is_builtin
from orchestrator.errors import SettingsError, translated
from orchestrator.karma.meaning import WORDS_ALONE, MemoryMeaning, Nearness
from orchestrator.karma.memories import Memories
from orchestrator.karma.recall import Recall
from orchestrator.karma.records import KINDS
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.keys import subkey
from orchestrator.machine.clock import SteadyClock
from orchestrator.model.chat_model import ChatModel
from orchestrator.model.host import Host
from orchestrator.model.kv_losses import KvLosses
from orchestrator.model.meaning import Meaning
from orchestrator.model.measuring import ContextMeter, MeasurementFile
from orchestrator.plugins import PluginFaults, installed
from orchestrator.program import Program
from orchestrator.prompt.coverage import coverage_named
from orchestrator.records import UserRecords
from orchestrator.relevance.gate import GateRules
from orchestrator.relevance.nodes import catalogue
from orchestrator.reports.status import About, prefill_of
from orchestrator.service import ModelEvent
from orchestrator.settings.archive import remote_archive
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths
from orchestrator.settings.relevance import gate_rules
from orchestrator.waking import AwaitedModel
from orchestrator.wire.places import VERSION
from orchestrator.wire.status import ArchivePlace

if TYPE_CHECKING:
    from orchestrator.answering.agent import Answerer

log = logging.getLogger("lorekeep")
TOKENS_KEPT = 2 * 2**30  # bytes of token ids on disk: half a billion tokens


Exchange = Callable[[str], AsyncIterator[ModelEvent]]
"""Puts a program with the model of this setting in the place of the one that runs; reports how far it is."""


def build(settings: Settings, paths: Paths, host: Host, exchange: Exchange) -> Program:
    """All parts around `host`, not yet started. In the event loop. Raises LoreError for a folder that cannot be used."""
    model_ready, registry = AwaitedModel(), installed(settings.prompt)
    plugins, gate = PluginFaults(registry.failures), gate_of(paths, catalogue(registry.nodes.values()))
    with translated():
        storage = storage_of(settings, paths, host, registry)
    codices = codices_of(settings, paths, host, storage, model_ready)
    searcher = searcher_of(storage, codices)
    symbols = CodexSymbols(storage.library.catalog, codices.residents, storage.outlines)
    answerer = cache(partial(answerer_of, storage, codices, searcher, symbols, model_ready, registry, plugins))
    memories = Memories(
        storage.memories, staleness_of(storage, codices), learn=settings.memory.learn, meaning=storage.memory_meaning
    )
    return Program(
        answers=answers_of(settings, gate, host, storage, codices, memories, searcher, answerer, model_ready),
        texts=texts_of(settings, host, codices, model_ready),
        about=about_of(paths, host, plugins, codices, gate, storage.archive),
        library=storage.library,
        states=storage.states,
        loads=codices.loads,
        loader=codices.loader,
        residents=codices.residents,
        lifecycle=codices.lifecycle,
        reports=codices.reports,
        searcher=searcher,
        codex_symbols=symbols,
        files=files_of(storage, codices),
        floor_files=codices.floor_files,
        maps=CodexMaps(storage.library.catalog, codices.residents, storage.outlines),
        records=UserRecords(
            storage.sessions, memories, storage.traces, codices.lifecycle, gate.rules, paths.checkpoints
        ),
        tending=Tending(
            storage.sessions,
            storage.memories,
            settings.memory.episodes,
            settings.memory.retention,
            SteadyClock().oldest,
        ),
        identity_files=codices.identities,
        machine=host.machine,
        meter=meter_of(settings, paths, host, codices, model_ready),
        client=host.client,
        yielding=host.yielding,
        watchers=codices.watchers,
        upkeep=codices.upkeep,
        meaning=storage.meaning,
        model_ready=model_ready,
        exchange=exchange,
        make_chat_model=partial(chat_model_of, host, storage, registry, plugins, answerer),
        import_agent=answerer,
        closing=(symbols.close, storage.close, host.sensors.close),
    )


@dataclass(frozen=True)
class Storage:
    """The databases, opened."""

    archive: Archive
    meaning: Meaning
    indexer: ArchiveIndexer
    library: Library
    sessions: SessionStore
    memories: MemoryStore
    memory_meaning: Nearness
    memory_vectors: VectorIndex
    traces: TraceKeeper
    states: CodexStateStore
    outlines: SqliteBytesCache
    tokens: TokenStore

    def close(self) -> None:
        kept = (self.sessions, self.memories, self.memory_vectors, self.traces, self.library)
        for one in (*kept, self.tokens, self.outlines, self.archive, self.meaning):
            one.close()


def storage_of(settings: Settings, paths: Paths, host: Host, registry: Registry) -> Storage:
    """Raises CodexError and LoreError for a database that cannot be used."""
    archive = Archive(paths.archive, remote_archive(settings, paths.archive))
    meaning = Meaning(settings.embedding, host.embedding, host.client, archive, paths.vectors)
    indexer = ArchiveIndexer(archive, meaning.filling.wanted, meaning.filling.forget)
    tokens = TokenStore(paths.cache / "tokens.sqlite3")
    tokens.trim(TOKENS_KEPT)
    key = subkey(host.key, "databases")
    memories = MemoryStore(paths.memories, kinds={**KINDS, **registry.kinds}, key=key)
    memory_vectors = VectorIndex(paths.memory_vectors)
    return Storage(
        archive=archive,
        meaning=meaning,
        indexer=indexer,
        library=Library(paths.codices, settings.for_library(), indexer=indexer),
        sessions=SessionStore(paths.sessions, key=key),
        memories=memories,
        memory_meaning=meaning_of(memories, memory_vectors, meaning),
        memory_vectors=memory_vectors,
        traces=TraceKeeper(
            TraceStore(paths.traces, settings.traces.days, settings.traces.bytes, aging=SteadyClock().oldest, key=key)
        ),
        states=CodexStateStore(paths.codices / STATES),
        outlines=SqliteBytesCache(paths.cache / "outlines.sqlite3"),
        tokens=tokens,
    )


@dataclass(frozen=True)
class CodexParts:
    """Every codex as it meets questions."""

    floors: Floors
    identities: Identities
    residents: ResidentCodices
    lifecycle: CodexLifecycle
    loads: Loads
    loader: CodexLoader
    watchers: CodexWatchers
    upkeep: ArchiveUpkeep
    freshness: FreshnessGauge
    reports: CodexReports
    floor_files: FloorFiles


def codices_of(settings: Settings, paths: Paths, host: Host, storage: Storage, model_ready: AwaitedModel) -> CodexParts:
    loads, library, states, floors = Loads(), storage.library, storage.states, Floors(host.client)
    files = IdentityFiles(paths.identities, settings.identity.default)
    if files.default != files.chosen:
        log.warning("the default identity %s is not in %s: %s answers", files.chosen, paths.identities, files.default)
    identities = ServingIdentities(files, states, model_ready.identifying)
    residents = residents_of(settings, host, storage, identities, model_ready, floors)
    successors = Successors(residents, floors.questions)
    lifecycle = CodexLifecycle(residents, successors, library, identities, floors, states, loads.far)
    watchers = CodexWatchers(library, library.settings.watch, lifecycle.changed, on=settings.codex.watch)
    wanted, left = storage.meaning.filling.wanted, storage.indexer.left
    upkeep = ArchiveUpkeep(library, storage.archive, residents.disk, wanted, left)
    freshness = FreshnessGauge(library, lifecycle, states, upkeep, watchers, loads.unseen, loads.failed)
    reports = CodexReports(host.client, floors, freshness)
    machine, client = host.machine, host.client
    loader = CodexLoader(
        library, residents, lifecycle, loads, floors, states, machine, client, watchers, upkeep, reports, model_ready
    )
    desk = Identities(paths.identities, files, identities, floors, model_ready.count, residents.warm_all)
    moved = FloorFiles(client, floors, identities, states, library.expect, library.knows)
    return CodexParts(floors, desk, residents, lifecycle, loads, loader, watchers, upkeep, freshness, reports, moved)


def residents_of(
    settings: Settings,
    host: Host,
    storage: Storage,
    identities: ServingIdentities,
    model_ready: AwaitedModel,
    floors: Floors,
) -> ResidentCodices:
    library, states, forced = storage.library, storage.states, settings.strategy.tier
    outlines, chunks = storage.outlines, storage.indexer.chunks
    builder = CodexBuilder(library, model_ready.now, settings.for_coverage(), outlines, states, chunks)
    coverage, dwell = None if forced == "auto" else coverage_named(forced), host.governor.pressure
    return ResidentCodices(library, builder, identities, host.machine, floors, states, coverage, dwell)


def searcher_of(storage: Storage, codices: CodexParts) -> ArchiveSearch:
    """Searches by words and by meaning; what each may not have seen is said with the hits."""
    meaning, freshness = storage.meaning, codices.freshness
    return ArchiveSearch(
        meaning.search,
        Neighbourhoods(storage.archive),
        codices.residents.digests,
        storage.library.catalog.document_by_digest,
        (freshness.unseen, meaning.filling.unseen) if meaning.model.file else (freshness.unseen,),
        codices.upkeep.begin,
        freshness.outdated,
        None if storage.archive.remote is None else storage.archive.remote.given,
    )


def meaning_of(memories: MemoryStore, vectors: VectorIndex, meaning: Meaning) -> Nearness:
    """Compares memories by meaning where a model embeds."""
    return WORDS_ALONE if meaning.embedders is None else MemoryMeaning(memories, vectors, *meaning.embedders)


def staleness_of(storage: Storage, codices: CodexParts) -> Staleness:
    """Compares memories with the files of a codex as questions meet them."""
    files = files_of(storage, codices)
    return Staleness(storage.memories, files.text_of, files.paths_of, files.commit_of)


def files_of(storage: Storage, codices: CodexParts) -> CodexFiles:
    return CodexFiles(storage.library, codices.residents)


@dataclass(frozen=True)
class ReadGate:
    """`rules` is None where they cannot be used, and `fault` says why. `nodes`: what it decides about."""

    rules: GateRules | None
    nodes: Mapping[str, ContextNode]
    fault: str = ""


def gate_of(paths: Paths, nodes: Mapping[str, ContextNode]) -> ReadGate:
    try:
        return ReadGate(gate_rules(paths, nodes), nodes)
    except SettingsError as fault:
        log.warning("the rules of relevance cannot be used, so everything is fetched for every turn: %s", fault.message)
        return ReadGate(None, nodes, fault.message)


def answers_of(
    settings: Settings,
    gate: ReadGate,
    host: Host,
    storage: Storage,
    codices: CodexParts,
    memories: Memories,
    searcher: ArchiveSearch,
    answerer: Callable[[], "Answerer"],
    model_ready: AwaitedModel,
) -> Answers:
    preparer = Preparer(
        codices.lifecycle,
        storage.library,
        Conversations(storage.sessions),
        host.machine,
        searcher,
        host.governor.claims,
        settings.for_strategy(),
        codices.freshness.of,
        Recall(storage.memories, memories.staleness, meaning=memories.meaning),
        gate.rules,
        gate.nodes,
        greedy=is_builtin(host.model.setting),
    )
    return Answers(
        preparer,
        answerer,
        host.client,
        codices.floors,
        Inference(host.client, host.machine),
        host.yielding,
        model_ready,
        host.model.setting,
        host.model.notice,
        codices.freshness.outdated,
        storage.traces,
        memories,
        ClientLedger(host.client),
        settings.tools.time,
    )


def texts_of(settings: Settings, host: Host, codices: CodexParts, model_ready: AwaitedModel) -> PlainTexts:
    return PlainTexts(
        host.client,
        host.machine,
        host.yielding,
        Inference(host.client, host.machine),
        codices.floors.questions,
        model_ready,
        model_ready.now,
        host.model.setting,
        settings.model.sequences,
        VERSION,
        greedy=is_builtin(host.model.setting),
    )


def answerer_of(
    storage: Storage,
    codices: CodexParts,
    searcher: ArchiveSearch,
    symbols: CodexSymbols,
    model_ready: AwaitedModel,
    registry: Registry,
    plugins: PluginFaults,
) -> "Answerer":
    """Made when it is first needed: the agent's framework is large."""
    from orchestrator.answering.agent import Answerer
    from orchestrator.answering.codex_tools import CodexTools, SearchArchive
    from orchestrator.answering.memory_tools import MemoryTools
    from orchestrator.answering.package_tools import PackageTools

    memories = MemoryTools(storage.memories, storage.sessions, staleness_of(storage, codices), storage.memory_meaning)
    packages = PackageTools(registry.tools.values(), plugins.in_a_call)
    files = files_of(storage, codices)
    look = CodexTools(files.text_of, files.paths_of, files.size_of, symbols.answer)
    search = SearchArchive(searcher, model_ready)
    return Answerer([search.search_archive, *look.functions, *memories.functions, *packages.functions])


def archive_place(remote: Remote | None) -> ArchivePlace | None:
    """As it was when it was last asked."""
    if remote is None:
        return None
    return ArchivePlace(uri=remote.uri, writes=remote.given.writes, fault=remote.away)


def about_of(
    paths: Paths, host: Host, plugins: PluginFaults, codices: CodexParts, gate: ReadGate, archive: Archive
) -> About:
    return About(
        host.model,
        host.machine,
        host.client,
        host.yielding,
        paths.models,
        host.conditions,
        host.governor,
        VERSION,
        partial(prefill_of, codices.residents, codices.floors),
        codices.loads.reports,
        KvLosses(paths.data),
        plugins.words,
        gate.fault,
        host.key.source if host.key else "off",
        partial(archive_place, archive.remote),
    )


def meter_of(
    settings: Settings, paths: Paths, host: Host, codices: CodexParts, model_ready: AwaitedModel
) -> ContextMeter:
    assert host.conditions.loaded is not None, "how this model is loaded was chosen"
    return ContextMeter(
        host.model.setting,
        host.model.path,
        host.conditions.loaded.plan,
        MeasurementFile(paths.measurements),
        host.client,
        host.machine,
        model_ready,
        partial(codices.floors.questions.idle, 0.0),
        host.governor.memory.smallest_window,
        settings.model.measured_context,
    )


def chat_model_of(
    host: Host, storage: Storage, registry: Registry, plugins: PluginFaults, answerer: Callable[[], "Answerer"]
) -> ChatModel:
    """Once the model is loaded; a built-in one calls no tools."""
    info = host.client.info
    assert info is not None
    tools = () if is_builtin(host.model.setting) else answerer().tools
    made = ChatModel(host.client, info, registry, storage.tokens, tools, plugins.in_a_prompt)
    if (rules := own_rules(made.placement.calls, tools, thinking=made.opens_thought)) is not None:
        host.client.prepare(rules)
    return made
