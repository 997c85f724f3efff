"""`lore doctor`: what it looks at, what it found, and what to type where that is not good.

What the machine around the daemon is like is read by `reports.surroundings` and judged by `reports.findings`. The longer
looks have modules of their own: `context`, `self_test`, `isolation`.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.client import Daemon, Failure
from orchestrator.cli.context import context as measure_context
from orchestrator.cli.isolation import isolated
from orchestrator.cli.service import unit_states
from orchestrator.cli.status import WITHOUT_ENGINE
from orchestrator.cli.terminal import count, kv_loss, listed, plural, result_json, result_page, size
from orchestrator.wire import faults
from orchestrator.wire.checks import Check, checked
from orchestrator.wire.places import QUOTER, QUOTING_SHORT, VERSION, compile_again

if TYPE_CHECKING:
    from orchestrator.reports.doctor import ConfiguredModel
    from orchestrator.reports.surroundings import EngineBuild
    from orchestrator.settings import Paths
    from orchestrator.settings.model import Settings

SelfTest = Annotated[bool, given.option("--self-test", "run load, ask, restart, ask on the built-in model")]
Context = Annotated[bool, given.option("--context", "measure how long a text the running model follows")]
Isolation = Annotated[
    bool, given.option("--isolation", "prove with canaries that no conversation reads another's, on the running model")
]
Codex = Annotated[
    str, given.option("-c, --codex NAME", "with --isolation: the codex that is asked; none: the bare model")
]
Again = Annotated[bool, given.option("--again", "with --context: measure everything anew")]
Yes = Annotated[bool, given.option("-y, --yes", "with --context: do not ask, however long it takes")]
RESTART = "systemctl --user restart lorekeep, or end lore serve and start it again"
LEAST_FREE = 2 * 1024**3  # bytes for checkpoints and models, below which neither is worth starting


def doctor(
    self_test: SelfTest = False,
    context: Context = False,
    isolation: Isolation = False,
    codex: Codex = "none",
    again: Again = False,
    yes: Yes = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Checks the installation; each finding comes with the command that mends it."""
    if context:
        measure_context(socket, again=again, yes=yes, as_json=as_json)
        return
    checks = test_of_itself() if self_test else isolated(socket, codex) if isolation else all_checks(socket)
    ok = all(check.ok for check in checks)
    if as_json:
        result_json({"ok": ok, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            result_page(f"  {check.name:10} {check.detail}", lead=lead(check))
            if check.fix:
                result_page(f"{'':17}{'fix' if not check.ok else 'tip'}: {check.fix}")
    if not ok:
        raise typer.Exit(faults.FAILED)


def test_of_itself() -> list[Check]:
    from orchestrator.cli.self_test import self_tested

    return self_tested()


def lead(check: Check) -> str:
    if not check.ok:
        return "BAD "
    return "none" if check.absent else "good"


def all_checks(socket: str | None) -> list[Check]:
    from orchestrator.reports.surroundings import built_engine

    built, (about_settings, chosen) = built_engine(), read_settings()
    about_model = configured_model(chosen, engine_runs=not built.fault) if chosen else []
    broken = plugin_failures(chosen)
    here = [
        engine(built),
        git(),
        folders(chosen),
        room(chosen),
        stores(),
        *archive_place(chosen),
        encryption(chosen),
        plugins(broken),
        relevance(chosen),
        service(),
    ]
    return [
        python(),
        about_settings,
        *about_model,
        *here,
        *surroundings(built, chosen),
        *running_daemon(socket, broken),
    ]


def surroundings(built: "EngineBuild", chosen: "Settings | None") -> Iterator[Check]:
    """The machine around the daemon: facts first, then what they mean."""
    from orchestrator.instance import daemon_of
    from orchestrator.reports import findings
    from orchestrator.reports import surroundings as facts
    from orchestrator.reports.doctor import gpu_names, worth

    kernel, paths, driver, names = facts.Kernel(), local.paths(), facts.read_driver(), gpu_names(os.environ)
    running = daemon_of(paths)
    ours = facts.family(int(running.pid)) if running and running.pid.isdigit() else frozenset()
    again = compile_again(cuda=True)
    yield findings.gpu(names, built, again, nvcc())
    yield findings.driver(driver, facts.cards_on_bus(kernel), built, again)
    yield findings.servers(facts.servers(kernel, driver, ours | {os.getpid()}), gpu_counts=built.uses_gpu)
    yield findings.watches(facts.watches(kernel, paths.codices / "catalog.sqlite", ours))
    yield findings.swap(facts.swap(kernel, ours))
    yield findings.speed(facts.timed(above(paths.cache)), worth(chosen, paths))
    yield findings.clock(facts.clock([*paths.data.glob("*.sqlite3"), *paths.checkpoints.glob("*")]))


def shared(chosen: "Settings | None", paths: "Paths") -> frozenset[Path]:
    """What is open by a setting: the socket, and its folder, where a group may connect."""
    if chosen is None or not chosen.serve.socket_group:
        return frozenset()
    return frozenset({paths.runtime, paths.socket})


def python() -> Check:
    return Check("python", True, ".".join(map(str, sys.version_info[:3])))  # no older one could have installed it


def read_settings() -> tuple[Check, "Settings | None"]:
    """None where they cannot be used: what depends on them is not looked into then."""
    try:
        loaded = local.settings()
    except Failure as failure:
        return Check("settings", False, failure.message, failure.hint), None
    detail = f"{len(loaded.origins)} set, in {', '.join(map(str, loaded.files)) or 'no file'}"
    return Check("settings", True, detail), loaded.settings


def engine(found: "EngineBuild") -> Check:
    if found.fault:
        return Check("engine", False, found.fault, compile_again(cuda=found.cuda))
    built = "with GPU" if found.uses_gpu else "for CUDA" if found.cuda else "for the CPU"
    return Check("engine", True, f"llama-cpp-python {found.version} {built}: {cpu_features(found.features)}")


def cpu_features(said: str) -> str:
    """llama.cpp's `CPU : SSE3 = 1 | AVX2 = 1 | ...` as the names of what is on."""
    on = [part.partition("=")[0].rpartition(":")[2].strip() for part in said.split("|") if part.strip().endswith("= 1")]
    return " ".join(on) or "no CPU features"


def nvcc() -> str | None:
    """CUDA's compiler, where PATH or CUDA's own folder has it."""
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def git() -> Check:
    found = shutil.which("git")
    return checked("git", found is not None, found or "not on PATH: no branch and no revision", "install git")


def folders(chosen: "Settings | None") -> Check:
    """Each, or the nearest folder above it that exists, must be ours to write to, and ours alone where it exists."""
    from orchestrator.reports.findings import permissions
    from orchestrator.reports.surroundings import open_paths

    looked = kept_folders()
    for existing in map(above, looked[:-1]):
        if not os.access(existing, os.W_OK):
            return Check("folders", False, f"{existing} may not be written to", f"sudo chown {os.getuid()} {existing}")
    return permissions(open_paths(looked, os.getuid(), shared(chosen, local.paths())), os.getuid(), looked)


def kept_folders() -> list[Path]:
    """Those that the daemon writes to, then the one that it only reads."""
    paths = local.paths()
    return [paths.cache, paths.data, paths.state, paths.runtime, paths.config]


def room(chosen: "Settings | None") -> Check:
    folder = above(local.paths().cache)  # the one that grows
    free = shutil.disk_usage(folder).free
    detail = f"{size(free)} free at {folder}"
    if chosen:
        most = min(chosen.storage.checkpoint_disk, int(free * chosen.storage.checkpoint_disk_share))
        detail += f", of which checkpoints take {size(most)} at most"
    return checked("disk", free >= LEAST_FREE, detail, "make room, or set XDG_CACHE_HOME to a larger disk")


def above(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def stores() -> Check:
    """Conversations and codices are data: a damaged database is reported before it is needed."""
    from orchestrator.instance import daemon_of
    from orchestrator.reports.doctor import damaged_stores, deleted_stores

    paths = local.paths()
    for store, pid in deleted_stores(paths):
        fault = f"{store} was deleted while process {pid} uses it: what that keeps is lost when it ends"
        return Check("databases", False, fault, f"kill {pid}, then start the daemon and load again")
    for store, fault in damaged_stores(paths):
        other = daemon_of(paths)
        first = f"stop the daemon (kill {other.pid}), then: " if other else ""
        # With its log, which SQLite would play into the file that is made next; as the daemon itself says it.
        move = f"cd {store.parent} && mkdir -p damaged && mv {store.name}* damaged/"
        aside = f"{first}{move} (what it held must be loaded again)"
        return Check("databases", False, f"{store}: {fault}", aside)
    return Check("databases", True, "conversations and codices pass their check, as far as they are not encrypted")


def archive_place(chosen: "Settings | None") -> Iterator[Check]:
    """Nothing of one in the daemon's own folder. The object storage is asked by the daemon alone, which tells of it."""
    from orchestrator.errors import LoreError
    from orchestrator.settings.archive import remote_archive

    if chosen is None or not chosen.archive.uri:
        return
    try:
        remote_archive(chosen, local.paths().archive)
    except LoreError as fault:
        yield Check("archive", False, fault.message, fault.hint)
        return
    may = "this daemon writes to it while nobody else does" if chosen.archive.writes else "this daemon only reads it"
    yield Check("archive", True, f"{chosen.archive.uri}: {may}; memories, conversations and vectors stay here")


def encryption(chosen: "Settings | None") -> Check:
    """The daemon alone has the key: files are asked what they are, not what they hold."""
    from orchestrator.reports.doctor import sealed_and_plain

    source = chosen.security.encrypt if chosen else "off"
    sealed, plain = sealed_and_plain(local.paths())
    if source == "off" and sealed:
        fix = "set security.encrypt to where their key is; checkpoints are deleted by a daemon that has none"
        return Check("encryption", False, f"off, but {listed(*sealed)} were encrypted: no daemon can read them", fix)
    if source == "off":
        return Check("encryption", True, "off: memories, conversations, traces and checkpoints are plain", absent=True)
    if plain:
        fix = "restart the daemon: it encrypts databases, and deletes plain checkpoints"
        return Check("encryption", False, f"{source}, but {listed(*plain)} are plain", fix)
    return Check("encryption", True, f"{source}: {listed(*sealed) or 'nothing is kept yet'}")


def plugin_failures(settings: "Settings | None") -> list[str]:
    from orchestrator.reports.doctor import plugin_failures as failures

    return failures(settings)


def plugins(broken: Sequence[str]) -> Check:
    detail = "; ".join(broken) or "all that are installed can be used"
    return checked("plug-ins", not broken, detail, "upgrade or uninstall the package named")


def relevance(settings: "Settings | None") -> Check:
    from orchestrator.errors import SettingsError
    from orchestrator.reports.doctor import refuse_broken_rules

    try:
        refuse_broken_rules(local.paths(), settings)
    except SettingsError as fault:
        return Check("relevance", False, f"{fault.message}; everything is fetched for every turn", fault.hint)
    own = [str(file) for file in local.paths().gate_rules if file.exists()]
    return Check("relevance", True, f"rules of {', '.join(own)}" if own else "the shipped rules")


def service() -> Check:
    """Not to be a service is no fault; to be one that fails is."""
    states = unit_states(user=True)
    failed = [name for name, state in states.items() if state == "failed"]
    if failed:
        return Check("service", False, f"{' and '.join(failed)} failed", f"journalctl --user -u {failed[0]} -n 20")
    if set(states.values()) == {"unknown"}:
        return Check("service", True, "systemd cannot be asked here; lore serve runs without it", absent=True)
    return Check("service", True, ", ".join(f"{name} {state}" for name, state in states.items()))


def running_daemon(socket: str | None, known: Sequence[str]) -> list[Check]:
    """One that does not run is no fault of the installation; one that answers wrongly is. `known`: plug-ins whose faults
    were told already."""
    from orchestrator.instance import daemon_of

    try:
        report: dict[str, Any] = Daemon(socket).call("GET", "/v1/status")
    except Failure as failure:
        absent = failure.status == faults.UNREACHABLE
        if absent and (other := daemon_of(local.paths())):  # it has our folders: no other one could start
            detail = f"{failure.message}; pid {other.pid} has its folders"
            return [Check("daemon", False, detail, f"lore --socket {other.about}, or kill {other.pid}")]
        return [Check("daemon", absent, failure.message, failure.hint, absent=absent)]
    failing = [one for one in report.get("plugins", ()) if one not in known]
    version = str(report.get("version", "unknown"))
    runs = checked("daemon", version == VERSION, f"version {version} runs{other_version(version)}", RESTART)
    told = [plugins(failing)] if failing else []
    return [runs, *told, *faults_of(report), archives(report["codices"], report.get("archive"))]


def other_version(version: str) -> str:
    return "" if version == VERSION else f", and this command is version {VERSION}: one was upgraded alone"


def faults_of(report: Mapping[str, Any]) -> Iterator[Check]:
    """What the daemon knows to be wrong with its model, its engine and its search by meaning."""
    model, engine, embedding = (report.get(part, {}) for part in ("model", "engine", "embedding"))
    if model.get("changed"):
        detail = f"{model['path']} changed since the daemon loaded it and made its floors"
        yield Check("file", False, detail, f"lore model use {model['path']}")
    if engine.get("state") in ("broken", "failed"):
        fix = "lore model use NAME, and restart the daemon"
        yield Check("running", False, f"the model: {engine.get('reason')}", fix)
    for server in engine.get("servers") or ():
        if server["state"] != "up":
            fix = "see its log; the daemon looks again by itself"
            yield Check("server", False, server["reason"] or f"{server['url']} is {server['state']}", fix)
    if embedding.get("fault"):
        fix = "name another GGUF file in embedding.model, or none, and restart the daemon"
        yield Check("meaning", False, f"search by meaning: {embedding['fault']}", fix)
    if given_up := engine.get("cache", {}).get("broken_pools", 0):  # the idle engine checks its conservation laws
        detail = f"{given_up:.0f} times a pool broke a law of its cells; it was given up and computed again"
        yield Check("pools", False, detail, "report it, with the lines of the daemon's log that hold 'given up'")


def archives(codices: list[dict[str, Any]], place: Mapping[str, Any] | None = None) -> Check:
    """An archive without a chunk finds nothing, though its codex has files. `place`: their object storage."""
    there = f", at {place['uri']}" if place else ""
    if place and place["fault"]:
        detail = f"{place['uri']} cannot be reached: {place['fault']}"
        return Check("archives", False, detail, "see archive.* of lore config show; the daemon asks again by itself")
    empty = [one["name"] for one in codices if one.get("files") and one.get("indexed_chunks") == 0]
    if empty:
        return Check("archives", False, f"nothing is indexed of {', '.join(empty)}", f"lore codex reload {empty[0]}")
    counted = sum(one.get("indexed_chunks") or 0 for one in codices)
    held = f"{counted:,} chunks of {plural(len(codices), 'codex', 'codices')} can be searched"
    return Check("archives", True, f"{held}{there}")


# ---- the model that is configured ------------------------------------------------------------------------------------


def configured_model(settings: "Settings", *, engine_runs: bool) -> list[Check]:
    """`engine_runs`: llama.cpp can be loaded, so that its fingerprint of a model can be asked for."""
    from orchestrator.reports.doctor import configured_model as configured

    if settings.engine.url:
        return [remote(settings)]
    try:
        with local.translated():
            found = configured(settings, local.paths())
    except Failure as fault:
        tip = fault.hint or "lore model use NAME, with one of lore model list"
        return [Check("model", False, fault.message, tip)]
    named = settings.model.path or QUOTER
    about = f"; {QUOTING_SHORT}" if named == QUOTER else ""
    if found is None:
        return [Check("model", True, f"{named}, whose file is made on first need{about}"), embedding(settings)]
    shape, because = found.file.shape, f", because {found.template.reason}" if found.template.reason else ""
    checks = [
        Check("model", True, f"{named}: {shape.architecture}{about}", shape.unpredictable or ""),
        Check("template", True, f"{found.template.words}{because}"),
        kv(found),
        *[Check("loading", False, f"{one.setting}: {one.why}", one.instead) for one in found.refused],
        embedding(settings),
    ]
    return [*checks, floors(found)] if engine_runs else checks


def remote(settings: "Settings") -> Check:
    """Its servers are asked by the daemon alone, which tells of them."""
    from orchestrator.errors import LoreError
    from orchestrator.model.remote import NO_EMBEDDING, remote_of

    try:
        remote_of(settings, os.environ)
    except LoreError as fault:
        return Check("remote", False, fault.message, fault.hint)
    if settings.embedding.model:
        return Check("remote", False, NO_EMBEDDING, "take embedding.model out of the settings, or engine.url")
    words = f"{listed(*settings.engine.url)} computes, and nothing is loaded here: without {WITHOUT_ENGINE}"
    return Check("remote", True, words)


def kv(found: "ConfiguredModel") -> Check:
    cut, plan = found.ranges, found.offload.plan
    words = "can be cut in ranges: a checkpoint is a tail alone" if cut.cut else f"is kept whole: {cut.why}"
    cost = f", {count(found.bytes_per_token)} B a token" if found.bytes_per_token is not None else ""
    flash = "on" if plan.flash_attention else "off"
    lost = "".join(f"; {kind} measured: {kv_loss(one.model_dump())}" for kind, one in found.kv_losses.items())
    return Check("KV", True, f"{words}; keys {plan.keys}, values {plan.values}{cost}; flash attention {flash}{lost}")


def embedding(settings: "Settings") -> Check:
    from orchestrator.preflight import embedding_fault

    named = settings.embedding.model
    tip = "lore model get hf:OWNER/REPO/FILE.gguf, and set embedding.model"
    if fault := embedding_fault(settings, local.paths()):
        return Check("embedding", False, fault, tip)
    return Check("embedding", True, named or "none: search goes by words and names", "" if named else tip)


def floors(found: "ConfiguredModel") -> Check:
    """A model whose file, KV types or flash attention changed finds none of the floors that were made before."""
    from orchestrator.reports.doctor import floors_on_disk

    held = floors_on_disk(found.file.path, found.offload, local.paths().checkpoints)
    other = f"; {size(held['other'])} were made with another model, file or KV type" if held["other"] else ""
    if held["own"]:
        return Check("floors", True, f"{size(held['own'])} on disk are of this file with these settings{other}")
    why = "the file or its settings changed since, or it was never asked" if held["other"] else "nothing was asked yet"
    return Check("floors", True, f"none on disk is of this file with these settings: {why}{other}")
