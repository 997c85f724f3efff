"""What `lore doctor` looks into beside the command line: GPUs, plug-ins, databases, who has the folders. Reads only."""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from codex.catalog.sealed import is_sealed
from governor.footprint import bytes_per_token
from governor.model_shape import FootprintError
from governor.offload import Impossible, Offload, impossible
from governor.sensors import Sensors
from orchestrator.codices.state_store import kept_sizes
from orchestrator.engine.costs import PREFIX, Costs, checked
from orchestrator.engine.model import EngineSpec, used
from orchestrator.errors import LoreError
from orchestrator.model.conditions import conditions_here
from orchestrator.model.kv_losses import KvLosses
from orchestrator.model.model_file import DEFAULT, ModelFile, builtins, find_model
from orchestrator.plugins import installed
from orchestrator.relevance.configuration import gate_rules
from orchestrator.relevance.gate import catalogue
from orchestrator.reports.kept import sealed_checkpoints
from orchestrator.reports.models import placement_report, ranges
from orchestrator.reports.surroundings import Worth
from orchestrator.settings.model import PromptTable, Settings
from orchestrator.settings.paths import Paths
from orchestrator.wire.answers import KvLoss
from orchestrator.wire.models import KvRanges, TemplatePlacement

STORES = ("*.sqlite3", "*.sqlite")  # the second: the catalog
FLOOR = 8192  # tokens of a small codex: a longer one takes longer for each of its tokens
_DELETED = " (deleted)"  # as the kernel says it


def gpu_names(environ: Mapping[str, str]) -> list[str]:
    sensors = Sensors(environ.get("CUDA_VISIBLE_DEVICES"))
    try:
        return [gpu.name for gpu in sensors.read(frozenset(), time.monotonic()).gpus]
    finally:
        sensors.close()


def plugin_failures(settings: Settings | None) -> list[str]:
    given = settings.prompt if settings is not None else PromptTable()
    return [str(failure) for failure in installed(given).failures]


def refuse_broken_rules(paths: Paths, settings: Settings | None) -> None:
    """Raises SettingsError for rules of relevance that cannot be used."""
    given = settings.prompt if settings is not None else PromptTable()
    gate_rules(paths.gate_rules, catalogue(installed(given).nodes.values()))


def damaged_stores(paths: Paths) -> list[tuple[Path, str]]:
    return [(store, fault) for store in stores(paths) if (fault := fault_of(store))]


def stores(paths: Paths) -> Iterator[Path]:
    for folder in dict.fromkeys((paths.data, paths.codices)):
        yield from sorted(store for pattern in STORES for store in folder.glob(pattern))


def sealed_and_plain(paths: Paths) -> tuple[list[str], list[str]]:
    """Of what is encrypted where a key is set: what is, and what is not, in words."""
    here = [store for store in (paths.memories, paths.sessions, paths.traces) if store.exists()]
    sealed, plain = ([one.name for one in here if is_sealed(one) == wanted] for wanted in (True, False))
    for words, number in zip((sealed, plain), sealed_checkpoints(paths.checkpoints), strict=True):
        if number:
            words.append(f"{number:,} checkpoints")
    return sealed, plain


def deleted_stores(paths: Paths) -> list[tuple[Path, str]]:
    """Databases that a process of this user still writes to, though they were deleted: with its pid."""
    homes = {os.path.realpath(folder) for folder in (paths.data, paths.codices)}
    found: set[tuple[Path, str]] = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            opened = os.readlink(descriptor)  # noqa: PTH115 - a thousand of them, and it is text that is looked at
        except OSError:
            continue  # ended meanwhile, or another user's
        store = Path(opened.removesuffix(_DELETED))
        if opened.endswith(_DELETED) and str(store.parent) in homes and any(map(store.match, STORES)):
            found.add((store, descriptor.parts[2]))
    return sorted(found)


def fault_of(store: Path) -> str:
    """SQLite's own quick check, read-only; "" where all is well, or where only the daemon can read it."""
    if is_sealed(store):
        return ""
    try:
        connection = sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
        try:
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite may quote the damaged bytes in what it complains of
        return " ".join(str(error).splitlines())
    return "" if said == "ok" else str(said).splitlines()[-1]  # the first line may name the database alone


@dataclass(frozen=True)
class ConfiguredModel:
    """A model that can be loaded, and how it would be now; `kv_losses`: what types of KV change of it, where that was
    measured; `refused`: settings that loading would fail with."""

    file: ModelFile
    offload: Offload
    kv_losses: dict[str, KvLoss]
    bytes_per_token: int | None
    ranges: KvRanges
    template: TemplatePlacement
    refused: tuple[Impossible, ...]


def configured_model(settings: Settings, paths: Paths) -> ConfiguredModel | None:
    """None for a built-in one whose file does not exist yet. Raises InvalidRequest for one that cannot be loaded."""
    chosen = settings.model.path or DEFAULT
    if any(one.about for one in builtins(paths.models) if one.id == chosen):
        return None
    model = find_model(settings.model.path, paths.models)
    here = conditions_here(settings, paths, partial(kept_sizes, paths.codices))
    offload = here.for_model(model.path, model.shape).offload
    try:
        per_token = bytes_per_token(model.shape, offload.plan)
    except FootprintError:
        per_token = None
    return ConfiguredModel(
        model,
        offload,
        KvLosses(paths.data).of(model.path, model.shape),
        per_token,
        ranges(model.shape, offload.plan),
        placement_report(model.placement),
        impossible(model.shape, offload, None),
    )


def worth(settings: Settings | None, paths: Paths) -> Worth | None:
    """A token of the configured model on disk, against computing it as the engine has learned; None before it has."""
    if settings is None:
        return None
    try:
        found = configured_model(settings, paths)
    except LoreError:
        return None  # told by the check of the model
    if found is None or found.bytes_per_token is None:
        return None
    learned = known_costs(paths.checkpoints, fingerprint_of(found.file.path, found.offload))
    if learned is None:
        return None
    return Worth(found.bytes_per_token, learned.prefill(settings.model.batch).per_token(0, FLOOR) / 1000)


def known_costs(checkpoints: Path, own: str) -> Costs | None:
    """Those that were learned last with this file and these settings; None where none were."""
    files = sorted(checkpoints.glob(f"{PREFIX}{own}-*"), key=used, reverse=True)
    for file in files:
        costs = Costs()
        with suppress(OSError, ValueError):
            costs.resume(checked(file.read_bytes()))
            if costs.known:
                return costs
    return None


def fingerprint_of(model: Path, offload: Offload) -> str:
    """Of its cells' values, as the names of checkpoints have it."""
    from orchestrator.engine.llama.model_files import fingerprint

    spec = EngineSpec(  # as far as cells depend on it
        str(model),
        kv_type_k=offload.plan.keys,
        kv_type_v=offload.plan.values,
        flash_attention=offload.plan.flash_attention,
        small_windows=offload.plan.small_windows > 0,
        context=offload.context or 0,
    )
    return fingerprint(spec)[:32]


def floors_on_disk(model: Path, offload: Offload, checkpoints: Path) -> dict[str, int]:
    """Bytes of checkpoints that this file, loaded so, can use (`own`), and of all others (`other`)."""
    own, found = fingerprint_of(model, offload), {"own": 0, "other": 0}
    for folder in checkpoints.iterdir() if checkpoints.is_dir() else ():
        if folder.is_dir():
            found["own" if folder.name == own else "other"] += sum(one.stat().st_size for one in folder.iterdir())
    return found
