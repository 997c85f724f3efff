"""The settings as each part takes them: its own value, and nothing else of the whole."""

from codex.settings import (
    AmendmentSettings,
    IngestSettings,
    LibrarySettings,
    SecretSettings,
    WalkSettings,
    WatchSettings,
)
from governor.settings import (
    ClaimSettings,
    GovernorSettings,
    MemorySettings,
    PressureSettings,
    SamplerSettings,
    StoreSettings,
)
from orchestrator.prompt.coverage import CoverageSettings
from orchestrator.prompt.strategy import StrategyParameters
from orchestrator.settings.model import Settings


def governor(settings: Settings) -> GovernorSettings:
    given, kept = settings.governor, settings.storage
    return GovernorSettings(
        memory=MemorySettings(
            gpu=given.gpu or None,
            vram_limit=given.vram_limit,
            margin_bytes=given.margin,
            margin_share=given.margin_share,
        ),
        stores=StoreSettings(
            disk_bytes=kept.checkpoint_disk,
            disk_share=kept.checkpoint_disk_share,
        ),
        pressure=PressureSettings(worse_s=given.worse_after, better_s=given.better_after),
        claims=ClaimSettings(depth=given.depth or None),
        sampler=SamplerSettings(busy_s=given.sensor_busy, idle_s=given.sensor_idle),
    )


def codex(settings: Settings) -> LibrarySettings:
    given = settings.codex
    return LibrarySettings(
        walk=WalkSettings(
            max_file_bytes=given.max_file,
            max_files=given.max_files,
            skip_vendored=given.skip_vendored,
            skip_lock_files=given.skip_lock_files,
            hidden=given.hidden,
        ),
        secrets=SecretSettings(load_secret_names=given.secrets, load_secret_contents=given.secrets),
        ingest=IngestSettings(readers=given.readers),
        amendments=AmendmentSettings(whole_file_tokens=given.whole_file, rebase_share=given.rebase_share),
        watch=WatchSettings(
            debounce_s=given.debounce,
            longest_wait_s=given.longest_wait,
            longest_hold_s=given.longest_hold,
            poll_s=given.poll,
            reconcile_s=given.reconcile,
        ),
    )


def tier(settings: Settings) -> CoverageSettings:
    given = settings.strategy
    return CoverageSettings(overhead_share=given.overhead, window_share=given.window_share)


def strategy(settings: Settings) -> StrategyParameters:
    given = settings.strategy
    return StrategyParameters(
        small_content=given.small_content,
        graph_content=given.graph_content,
        hybrid_share=given.hybrid_share,
        rag_share=given.rag_share,
    )
