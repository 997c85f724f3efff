"""The governor's settings in slices: every default in one place, with its unit and its reason; and sizes as text.

A part receives its own slice, never the whole and never the environment.
"""

import re
from dataclasses import dataclass, field

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
_LIMIT = re.compile(r"(\d+(?:\.\d+)?)(%?)")


class SettingError(Exception):
    """A setting has a value that cannot be used."""


@dataclass(frozen=True)
class MemorySettings:
    """What we may take of the memory that holds weights and KV: VRAM, or RAM where there is no GPU.

    `vram_limit` bounds what is ours, not all programs' use: bytes ("6442450944") or a share of what was free at start
    ("90%"), which is what others left us.
    `gpu` is an NVML index or the start of a UUID; None takes the first visible one.
    """

    gpu: str | None = None
    vram_limit: str = "90%"
    margin_bytes: int = 512 * MIB  # never planned away: driver growth and other programs' small peaks
    margin_share: float = 0.05  # of the total; the larger of the two margins counts
    planned_share: float = 0.90  # of what is left for KV; the rest is for others' small growth
    smallest_window: int = 4_096  # tokens; below it no planning, only what is physically there
    grant_step: float = 0.02  # of its cells: a smaller move of a grant is no new grant, it would stale every plan


@dataclass(frozen=True)
class StoreSettings:
    """Limits of checkpoints on disk."""

    disk_bytes: int = 50 * 1000**3
    disk_share: float = 0.20  # of what is free on the disk; the smaller of the two counts


@dataclass(frozen=True)
class PressureSettings:
    """Levels of pressure as shares of the limit, which rise, and how long they must hold. Seconds.

    The dwell times are those of a codex's coverage: worse after 10 s, better after 60 s.
    """

    elevated: float = 0.70
    high: float = 0.85
    critical: float = 0.95
    hysteresis: float = 0.03  # a level is left this much below where it was entered
    worse_s: float = 10.0
    better_s: float = 60.0
    low_power_share: float = 0.5  # an enforced power limit under this share of the default is `low-power`


@dataclass(frozen=True)
class YieldSettings:
    """When the memory is given away without being asked for. `idle_s` in seconds, 0 for never."""

    polite: bool = True  # when others' growth makes the level critical
    idle_s: float = 1800.0


@dataclass(frozen=True)
class ClaimSettings:
    """Limits of a prompt, before anything is sacrificed."""

    # The character cap is this times the window. Tokens are counted, so it is for what is no text: rows of one sign.
    # English prose has up to 5 characters a token: at 4 it was refused with a fifth of the window still free.
    characters_per_token: int = 16
    characters: int | None = None  # a cap of one's own
    depth: int | None = None  # the most turns in a prompt; None: as many as fit
    gist: int = 256  # tokens for what stands in the place of turns that went; 0: nothing does
    gist_s: float = 20.0  # seconds that the model may take for one; 0: it is never asked


@dataclass(frozen=True)
class SamplerSettings:
    """The sensors' clock. Seconds."""

    busy_s: float = 0.25  # while a query runs
    idle_s: float = 2.0
    retry_s: float = 30.0  # a driver or a GPU that is lost is started again: that may take seconds
    hang_s: float = 5.0  # a sensor without an answer for this long is reported, and no longer waited for


@dataclass(frozen=True)
class GovernorSettings:
    """All slices of the governor."""

    memory: MemorySettings = field(default_factory=MemorySettings)
    stores: StoreSettings = field(default_factory=StoreSettings)
    pressure: PressureSettings = field(default_factory=PressureSettings)
    claims: ClaimSettings = field(default_factory=ClaimSettings)
    yielding: YieldSettings = field(default_factory=YieldSettings)
    sampler: SamplerSettings = field(default_factory=SamplerSettings)


def limit_bytes(text: str, free_at_start: int) -> int:
    """A limit as bytes: a number of them, or a share such as '90%' of `free_at_start` bytes.

    SettingError where it is none of them, nothing, or a share above 100 %.
    """
    matched = _LIMIT.fullmatch(text)
    if matched is None:
        raise SettingError(f"{text!r} is no limit; write a number of bytes, or a share such as 90%")
    number, is_share = float(matched[1]), bool(matched[2])
    if number == 0 or (is_share and number > 100):
        raise SettingError(f"{text!r} is no limit; write more than 0, and a share up to 100%")
    return int(free_at_start * number / 100) if is_share else int(number)


def size(count: float) -> str:
    """12.2 GiB, 340 MiB, 12 KiB."""
    if count >= GIB:
        return f"{count / GIB:.1f} GiB"
    return f"{count / MIB:.0f} MiB" if count >= MIB else f"{count / KIB:.0f} KiB"


def short_count(tokens: int) -> str:
    """2.5M, 100k, 8.2k, 900."""
    if tokens < 1000:
        return str(tokens)
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}".removesuffix(".0") + "M"
    return f"{tokens / 1000:.1f}".removesuffix(".0") + "k" if tokens < 10_000 else f"{tokens / 1000:.0f}k"
