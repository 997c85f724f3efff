"""What a model meets when it is loaded here: the memory that counts, the limit, the GPUs, and how it is loaded for them.

The daemon, `lore model show` and `lore doctor` all ask here, so they say the same. Loads nothing.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from governor.budget import Demand, MemoryBudget, Ours, next_outlook, plan_budget
from governor.footprint import KvPlan
from governor.model_shape import FootprintError, ModelShape
from governor.offload import STAYS, Offload, has_small_windows, impossible, with_windows
from governor.readings import MemoryReading, memory_of
from governor.sensors import Sensors
from governor.settings import MemorySettings
from orchestrator.engine.builtin.files import is_builtin
from orchestrator.errors import SettingsError
from orchestrator.machine.machine import ModelSensors
from orchestrator.model.embedding_model import find_embedding
from orchestrator.model.model_file import BUILT
from orchestrator.model.offloading import engine_offloads, offload_of
from orchestrator.prompt.coverage import (
    DEFAULT_COVERAGE,
    CoverageDecision,
    CoverageSettings,
    CoverageSizes,
    FloorRoom,
    decide_coverage,
)
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths, write_whole

TRIAL_WINDOW = 16_384  # of a built-in model, which is for trying out: on two cores a prompt this long takes a minute
WINDOW_CACHES = "window-caches.json"  # beside the checkpoints, which are of one kind of cache each
KV_TYPES = "kv-types.json"  # likewise
CLEARLY_MORE = 1.25  # times the tokens of a codex: for less no values are rounded
Sizes = Mapping[str, CoverageSizes]
Kept = Callable[[], Sizes]  # of codices that were loaded before, by name
log = logging.getLogger("lorekeep.engine")


@dataclass(frozen=True)
class Gpu:
    """One that the engine may use; `free` bytes on it."""

    name: str
    free: int


@dataclass(frozen=True)
class LoadingConditions:
    """What a model meets when it is loaded here: how, the memory that counts, the user's limit, RAM for layers that a GPU
    cannot take, what the embedding model takes beside any model. `gpus` none: everything runs on the CPU.

    `offload` is as set, for any model, until `for_model`; `loaded` is that of the model that runs, `measured` the tokens
    that it was measured to follow. `window_caches` and `kv_types`: by file, the cache that its sliding layers had when it
    was loaded last, and its type of KV. `kept`: the codices that KV is for.
    """

    offload: Offload
    memory: MemoryReading | None
    settings: MemorySettings
    limit: int | None = None
    host_free: int = 0
    embedding_bytes: int = 0
    gpus: tuple[Gpu, ...] = ()
    loaded: Offload | None = None
    measured: int | None = None
    window_caches: Mapping[str, str] = field(default_factory=dict)
    kv_types: Mapping[str, str] = field(default_factory=dict)
    kept: Kept = dict
    coverage: CoverageSettings = DEFAULT_COVERAGE

    def for_model(self, path: Path, shape: ModelShape, *, loaded: bool = False) -> "LoadingConditions":
        """For one model; of the one that runs, `loaded`, as it was chosen then."""
        if loaded and self.loaded is not None:
            return replace(self, offload=self.loaded)
        offload = self.offload
        if offload.context is None and BUILT.match(path.name):
            offload = replace(offload, context=TRIAL_WINDOW)
        here = replace(self, measured=None)
        if offload.kv_auto and offload.on_gpu:
            offload = here._with_kv(path, shape, offload)
        return replace(here, offload=here._with_windows(path, shape, offload))

    def _with_windows(self, path: Path, shape: ModelShape, offload: Offload) -> Offload:
        before = self.window_caches.get(str(path), "")
        return with_windows(offload.for_shape(shape), shape, lambda plan: self.window(shape, plan), before)

    def _with_kv(self, path: Path, shape: ModelShape, offload: Offload) -> Offload:
        """With f16, or with q8_0 where that is better for the codices that were loaded before. Where the model had q8_0
        last, f16 must do with a fifth of its room to spare."""
        plain, small = (
            replace(offload, plan=replace(offload.plan, keys=kind, values=kind), kv_reason="")
            for kind in ("f16", "q8_0")
        )
        if impossible(shape, small.for_shape(shape), None):
            return plain
        share = STAYS if self.kv_types.get(str(path)) == "q8_0" else 1.0
        covered = (self._covered(path, shape, one, of) for one, of in ((plain, share), (small, 1.0)))
        why = gain(*covered)
        return replace(small, kv_reason=why) if why else plain

    def _covered(self, path: Path, shape: ModelShape, offload: Offload, share: float) -> dict[str, CoverageDecision]:
        """What of each codex would be in the prefix, with this share of the room; none where nothing can be planned."""
        try:
            budget = self.budget(shape, self._with_windows(path, shape, offload).plan)
        except FootprintError:
            return {}
        if budget is None:
            return {}
        window = min(budget.window, offload.context or budget.window)
        room = FloorRoom(window=int(window * share), identity=0, kv_tokens=int(budget.cells * share))
        return {name: decide_coverage(sizes, room, self.coverage) for name, sizes in self.kept().items()}

    def budget(self, shape: ModelShape, plan: KvPlan) -> MemoryBudget | None:
        """With this plan; None where the memory cannot be read. FootprintError where KV cannot be predicted."""
        if self.memory is None:
            return None
        layers = self.offload.gpu_layers
        demand = Demand(
            shape,
            plan,
            gpu_layers=None if layers < 0 else layers,
            host_free=self.host_free,
            embedding_bytes=self.embedding_bytes,
            measured=self.measured,
        )
        return plan_budget(0, self.memory, demand, self.settings, self.limit)

    def window(self, shape: ModelShape, plan: KvPlan) -> int:
        """Tokens of the longest sequence; 0 where nothing can be planned."""
        try:
            budget = self.budget(shape, plan)
        except FootprintError:
            return 0
        return budget.window if budget is not None else 0


def gain(plain: Mapping[str, CoverageDecision], small: Mapping[str, CoverageDecision]) -> str:
    """Why q8_0 (`small`) is better than f16 (`plain`), by what each leaves of the same codices; '' where it is not.

    1. Where a codex has a smaller coverage, or fewer tokens in the same, it is not.
    2. It is where a codex has a larger coverage, or CLEARLY_MORE tokens in the same.
    """
    pairs = [(name, plain[name], small[name]) for name in sorted(plain.keys() & small.keys())]
    if any((after.coverage.rank, after.tokens) < (before.coverage.rank, before.tokens) for _, before, after in pairs):
        return ""
    for name, before, after in pairs:
        if after.coverage is not before.coverage:
            return f"codex {name} fits as {after.coverage}, with f16 as {before.coverage}"
        if after.tokens > CLEARLY_MORE * before.tokens:
            return f"{after.tokens:,} tokens of codex {name} fit, with f16 {before.tokens:,}"
    return ""


def conditions_here(settings: Settings, paths: Paths, kept: Kept = dict) -> LoadingConditions:
    """As `Machine` sees it before anything is loaded. A built-in embedding model that is not made yet counts nothing."""
    offloads = engine_offloads()
    governor, offload = settings.for_governor(), offload_of(settings.model, offloads=offloads)
    sensors = Sensors(os.environ.get("CUDA_VISIBLE_DEVICES"))
    seen = ModelSensors(sensors, offload if governor.memory.gpu is None else None)
    seen.cpu_only = not offloads and governor.memory.gpu is None  # a GPU that is named counts, as in `Machine`
    try:
        outlook = next_outlook(None, seen.read(frozenset({os.getpid()}), time.monotonic()), Ours(), governor)
    finally:
        sensors.close()
    memory = memory_of(outlook.snapshot, governor.memory.gpu)
    file = None if is_builtin(settings.embedding.model) else find_embedding(settings.embedding, paths.models).file
    cost = file.cost if file is not None else None
    embedding = cost.here(on_gpu=memory is not None and memory.where == "VRAM") if cost is not None else 0
    free = outlook.snapshot.host.ram_available or 0
    gpus = () if not offloads else tuple(Gpu(gpu.name, gpu.free or 0) for gpu in seen.gpus)
    return LoadingConditions(
        offload,
        memory,
        governor.memory,
        outlook.limit,
        free,
        embedding,
        gpus,
        window_caches=window_caches(paths.checkpoints),
        kv_types=remembered(paths.checkpoints / KV_TYPES, ("f16", "q8_0")),
        kept=kept,
        coverage=settings.for_coverage(),
    )


# -- how a model was loaded last


def window_caches(checkpoints: Path) -> dict[str, str]:
    """By the model's file: full or small."""
    return remembered(checkpoints / WINDOW_CACHES, ("full", "small"))


def remembered(file: Path, words: Collection[str]) -> dict[str, str]:
    """By the model's file, one of these words. Nothing where nothing is known, or it cannot be read."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    known = found.items() if isinstance(found, dict) else ()
    return {path: word for path, word in known if isinstance(word, str) and word in words}


def remember_window_cache(checkpoints: Path, path: Path, shape: ModelShape, chosen: Offload) -> None:
    """For the next start; where it is set, or there is one kind, nothing is to be remembered."""
    if chosen.windows == "auto" and has_small_windows(shape):
        word = "small" if chosen.plan.small_windows else "full"
        remember(checkpoints / WINDOW_CACHES, window_caches(checkpoints), path, word)


def remember_kv_type(checkpoints: Path, path: Path, chosen: Offload) -> None:
    """For the next start, where it was chosen."""
    if chosen.kv_auto and chosen.on_gpu:
        known = remembered(checkpoints / KV_TYPES, ("f16", "q8_0"))
        remember(checkpoints / KV_TYPES, known, path, chosen.plan.keys)


def remember(file: Path, known: Mapping[str, str], path: Path, word: str) -> None:
    """Models that are gone are forgotten."""
    if known.get(str(path)) == word:
        return
    others = {other: its for other, its in known.items() if Path(other).exists()}
    try:
        write_whole(file, json.dumps({**others, str(path): word}, indent=1) + "\n")
    except (OSError, SettingsError) as error:
        log.warning("how %s was loaded is not remembered: %s", path, error)
