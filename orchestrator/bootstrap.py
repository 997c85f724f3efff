"""Names and wires every part, once. The only place that knows them all."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
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
from orchestrator.codices.reading import CodexFiles, CodexMaps
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
from orchestrator.relevance.configuration import gate_rules
from orchestrator.relevance.gate import GateRules, catalogue
from orchestrator.reports.status import About, prefill_of
from orchestrator.service import ModelEvent
from orchestrator.settings.archive import remote_archive
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths
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
    gate, plugins = gate_of(paths, catalogue(registry.nodes.values())), PluginFaults(registry.failures)
    with translated():
        storage = storage_of(settings, paths, host, registry)
    codices = codices_of(settings, paths, host, storage, model_ready)
    return Wiring(settings, paths, host, registry, plugins, gate, storage, codices, model_ready).program(exchange)


@dataclass(frozen=True)
class Wiring:
    """What each part is made of; the parts that several others need are made once."""

    settings: Settings
    paths: Paths
    host: Host
    registry: Registry
    plugins: PluginFaults
    gate: "ReadGate"
    storage: "Storage"
    codices: "CodexParts"
    model_ready: AwaitedModel

    def program(self, exchange: Exchange) -> Program:
        host, storage, codices = self.host, self.storage, self.codices
        return Program(
            answers=self.answers(),
            texts=self.texts(),
            about=self.about(),
            library=storage.library,
            states=storage.states,
            loads=codices.loads,
            loader=codices.loader,
            residents=codices.residents,
            lifecycle=codices.lifecycle,
            reports=codices.reports,
            searcher=self.searcher,
            codex_symbols=self.symbols,
            files=self.files,
            floor_files=codices.floor_files,
            maps=CodexMaps(storage.library.catalog, codices.residents, storage.outlines),
            records=UserRecords(
                storage.sessions,
                self.memories,
                storage.traces,
                codices.lifecycle,
                self.gate.rules,
                self.paths.checkpoints,
            ),
            tending=self.tending(),
            identity_files=codices.identities,
            machine=host.machine,
            meter=self.meter(),
            client=host.client,
            yielding=host.yielding,
            watchers=codices.watchers,
            upkeep=codices.upkeep,
            meaning=storage.meaning,
            model_ready=self.model_ready,
            exchange=exchange,
            make_chat_model=self.chat_model,
            import_agent=self.answerer,
            closing=(self.symbols.close, storage.close, host.sensors.close),
        )

    # -- parts that several others need

    @cached_property
    def searcher(self) -> ArchiveSearch:
        """Searches by words and by meaning; what each may not have seen is said with the hits."""
        storage, codices = self.storage, self.codices
        meaning, freshness, remote = storage.meaning, codices.freshness, storage.archive.remote
        return ArchiveSearch(
            search_in=meaning.search,
            near=Neighbourhoods(storage.archive),
            digests=codices.residents.digests,
            read=storage.library.catalog.document_by_digest,
            unseen=(freshness.unseen, meaning.filling.unseen) if meaning.model.file else (freshness.unseen,),
            damaged=codices.upkeep.begin,
            outdated=freshness.outdated,
            remote=None if remote is None else remote.given,
        )

    @cached_property
    def symbols(self) -> CodexSymbols:
        return CodexSymbols(self.storage.library.catalog, self.codices.residents, self.storage.outlines)

    @cached_property
    def files(self) -> CodexFiles:
        return CodexFiles(self.storage.library, self.codices.residents)

    @cached_property
    def memories(self) -> Memories:
        storage, files = self.storage, self.files
        staleness = Staleness(storage.memories, files.text_of, files.paths_of, files.commit_of)
        return Memories(storage.memories, staleness, learn=self.settings.memory.learn, meaning=storage.memory_meaning)

    def answerer(self) -> "Answerer":
        """Made when it is first needed: the agent's framework is large."""
        return self._answerer

    @cached_property
    def _answerer(self) -> "Answerer":
        from orchestrator.answering.agent import Answerer
        from orchestrator.answering.codex_tools import CodexTools, SearchArchive
        from orchestrator.answering.memory_tools import MemoryTools
        from orchestrator.answering.package_tools import PackageTools

        storage, files = self.storage, self.files
        memories = MemoryTools(storage.memories, storage.sessions, self.memories.staleness, storage.memory_meaning)
        packages = PackageTools(self.registry.tools.values(), self.plugins.in_a_call)
        look = CodexTools(files.text_of, files.paths_of, files.size_of, self.symbols.answer)
        search = SearchArchive(self.searcher, self.model_ready)
        return Answerer([search.search_archive, *look.functions, *memories.functions, *packages.functions])

    # -- parts that the program alone needs

    def answers(self) -> Answers:
        host, storage, codices, memories = self.host, self.storage, self.codices, self.memories
        preparer = Preparer(
            lifecycle=codices.lifecycle,
            library=storage.library,
            conversations=Conversations(storage.sessions),
            machine=host.machine,
            searcher=self.searcher,
            claims=host.governor.claims,
            strategy=self.settings.for_strategy(),
            fresh=codices.freshness.of,
            recall=Recall(storage.memories, memories.staleness, meaning=memories.meaning),
            gate_rules=self.gate.rules,
            nodes=self.gate.nodes,
            greedy=is_builtin(host.model.setting),
        )
        return Answers(
            preparer=preparer,
            answerer=self.answerer,
            client=host.client,
            floors=codices.floors,
            inference=Inference(host.client, host.machine),
            yielding=host.yielding,
            model_ready=self.model_ready,
            model_name=host.model.setting,
            notice=host.model.notice,
            outdated=codices.freshness.outdated,
            traces=storage.traces,
            memories=memories,
            clients=ClientLedger(host.client),
            turn_s=self.settings.tools.time,
        )

    def texts(self) -> PlainTexts:
        host = self.host
        return PlainTexts(
            client=host.client,
            machine=host.machine,
            yielding=host.yielding,
            inference=Inference(host.client, host.machine),
            questions=self.codices.floors.questions,
            model_ready=self.model_ready,
            model_now=self.model_ready.now,
            setting=host.model.setting,
            sequences=self.settings.model.sequences,
            version=VERSION,
            greedy=is_builtin(host.model.setting),
        )

    def about(self) -> About:
        host, codices = self.host, self.codices
        return About(
            model=host.model,
            machine=host.machine,
            client=host.client,
            yielding=host.yielding,
            folder=self.paths.models,
            conditions=host.conditions,
            governor=host.governor,
            version=VERSION,
            prefill=partial(prefill_of, codices.residents, codices.floors),
            loads=codices.loads.reports,
            losses=KvLosses(self.paths.data),
            plugins=self.plugins.words,
            gate_fault=self.gate.fault,
            encrypt=host.key.source if host.key else "off",
            archive=partial(archive_place, self.storage.archive.remote),
        )

    def tending(self) -> Tending:
        storage, memory = self.storage, self.settings.memory
        return Tending(storage.sessions, storage.memories, memory.episodes, memory.retention, SteadyClock().oldest)

    def meter(self) -> ContextMeter:
        host, questions = self.host, self.codices.floors.questions
        assert host.conditions.loaded is not None, "how this model is loaded was chosen"
        return ContextMeter(
            name=host.model.setting,
            path=host.model.path,
            plan=host.conditions.loaded.plan,
            file=MeasurementFile(self.paths.measurements),
            client=host.client,
            machine=host.machine,
            model=self.model_ready,
            quiet=partial(questions.idle, 0.0),
            least=host.governor.memory.smallest_window,
            applies=self.settings.model.measured_context,
        )

    def chat_model(self) -> ChatModel:
        """Once the model is loaded; a built-in one calls no tools."""
        client = self.host.client
        assert client.info is not None
        tools = () if is_builtin(self.host.model.setting) else self.answerer().tools
        made = ChatModel(client, client.info, self.registry, self.storage.tokens, tools, self.plugins.in_a_prompt)
        if (rules := own_rules(made.placement.calls, tools, thinking=made.opens_thought)) is not None:
            client.prepare(rules)
        return made


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
    memory_vectors, near = VectorIndex(paths.memory_vectors), meaning.embedders
    return Storage(
        archive=archive,
        meaning=meaning,
        indexer=indexer,
        library=Library(paths.codices, settings.for_library(), indexer=indexer),
        sessions=SessionStore(paths.sessions, key=key),
        memories=memories,
        memory_meaning=(
            WORDS_ALONE if near is None else MemoryMeaning(memories, memory_vectors, *near)  # where a model embeds
        ),
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
    outlines, chunks, forced = storage.outlines, storage.indexer.chunks, settings.strategy.tier
    builder = CodexBuilder(library, model_ready.now, settings.for_coverage(), outlines, states, chunks)
    coverage, dwell = None if forced == "auto" else coverage_named(forced), host.governor.pressure
    residents = ResidentCodices(library, builder, identities, host.machine, floors, states, coverage, dwell)
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


@dataclass(frozen=True)
class ReadGate:
    """`rules` is None where they cannot be used, and `fault` says why. `nodes`: what it decides about."""

    rules: GateRules | None
    nodes: Mapping[str, ContextNode]
    fault: str = ""


def gate_of(paths: Paths, nodes: Mapping[str, ContextNode]) -> ReadGate:
    try:
        return ReadGate(gate_rules(paths.gate_rules, nodes), nodes)
    except SettingsError as fault:
        log.warning("the rules of relevance cannot be used, so everything is fetched for every turn: %s", fault.message)
        return ReadGate(None, nodes, fault.message)


def archive_place(remote: Remote | None) -> ArchivePlace | None:
    """As it was when it was last asked."""
    if remote is None:
        return None
    return ArchivePlace(uri=remote.uri, writes=remote.given.writes, fault=remote.away)
