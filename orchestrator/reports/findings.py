"""What facts of the machine mean for Lorekeep, and the command that mends each. Pure: `surroundings` reads the facts.

A fault is what makes answers wrong, slow or readable by others. What only might is told with a tip.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from governor.driver import Driver
from governor.settings import size
from orchestrator.reports.surroundings import (
    Clock,
    DiskRate,
    EngineBuild,
    OpenPath,
    Server,
    Swap,
    Watches,
    Worth,
)
from orchestrator.wire.checks import Check, checked

NVCC = "sudo apt install nvidia-cuda-toolkit"
SOONER = 1.5  # times, as the engine has it: what is less clear may be noise
LARGE = 512 * 1024**2  # bytes that another server may hold before it is a fault: the smallest useful model's
SWAPPED = 64 * 1024**2  # bytes of ours in swap: less are pages that nobody reads again
AHEAD_S = 120.0  # seconds: clocks of two file servers differ by less
SPARE_WATCHES = 512  # for folders that come, and for editors
SHOWN = 3  # paths or programs that a line names
STOPS = {
    "ollama": "ollama stop MODEL, or sudo systemctl stop ollama",
    "LM Studio": "lms unload --all",
}


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def gpu(names: Sequence[str], engine: EngineBuild, compile_again: str, nvcc: str | None) -> Check:
    """A GPU that the engine does not use is the commonest reason for slow answers."""
    if not names:
        return Check("gpu", True, "the driver tells of no NVIDIA GPU; models run on the CPU", absent=True)
    found = " and ".join(names)
    if engine.uses_gpu:
        return Check("gpu", True, f"{found}, and the engine uses it")
    if engine.cuda:  # the driver check has the reason where it is known
        return Check(
            "gpu", False, f"{found}; the engine was built for CUDA and finds no GPU that it can use", compile_again
        )
    fix = compile_again if nvcc else f"{NVCC}, then: {compile_again}"
    return Check("gpu", False, f"{found}, but the engine was built for the CPU", fix)


def driver(told: Driver | None, cards: int, engine: EngineBuild, compile_again: str) -> Check:
    """The driver's version against the CUDA that the engine was compiled with."""
    if told is None:
        if cards:
            words = "an NVIDIA card is in the machine, and no driver of NVIDIA's is installed"
            return Check("driver", False, words, "sudo apt install nvidia-driver (Ubuntu: sudo ubuntu-drivers install)")
        return Check("driver", True, "no NVIDIA driver, and no card", absent=True)
    if told.replaced:
        words = f"the driver's library was replaced, the kernel still has the module before it ({told.fault})"
        return Check("driver", False, words, "sudo reboot")
    if told.fault:
        return Check("driver", False, f"the driver cannot be asked: {told.fault}", "sudo modprobe nvidia, or reboot")
    version = f"NVIDIA {told.version or 'driver'}"
    if told.cuda is None:
        return Check("driver", True, version)
    allowed = f"{version}, CUDA up to {dotted(told.cuda)}"
    if engine.runtime is None:
        return Check("driver", True, allowed)
    built = f"{allowed}; the engine has CUDA {dotted(engine.runtime)}"
    if engine.runtime[0] > told.cuda[0]:
        return Check(
            "driver", False, f"{built}, which this driver does not run", upgrade(engine.runtime, compile_again)
        )
    # Within a major version an older driver runs a newer CUDA, but compiles no kernel that was not built for its card.
    newer = engine.runtime > told.cuda
    if newer and not engine.uses_gpu:
        return Check("driver", False, f"{built}, and no GPU can be used", upgrade(engine.runtime, compile_again))
    return Check("driver", True, built, upgrade(engine.runtime, compile_again) if newer else "")


def upgrade(runtime: tuple[int, int], compile_again: str) -> str:
    return f"install a driver for CUDA {dotted(runtime)} or newer, or compile with an older CUDA: {compile_again}"


def dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


# ---- other programs --------------------------------------------------------------------------------------------------


def servers(found: Sequence[Server], *, gpu_counts: bool) -> Check:
    """`gpu_counts`: the model lies on a GPU, so that what others hold there is missing."""
    if not found:
        return Check("servers", True, "no other program serves a model here")
    named = ", ".join(f"{one.name} (pid {one.pid}, {held(one)})" for one in found[:SHOWN])
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    large = [one for one in found if ((one.gpu or 0) if gpu_counts else one.ram) >= LARGE]
    if not large:
        return Check("servers", True, f"{named}{more}: little of the memory that counts here", "")
    where = "the GPU's memory" if gpu_counts else "memory"
    return Check("servers", False, f"{named}{more} hold {where} that floors could have", stopping(large[0]))


def held(one: Server) -> str:
    ram = f"{size(one.ram)} of RAM"
    if one.gpu is None:
        return f"{ram}, and some of the GPU"
    return f"{size(one.gpu)} of the GPU, {ram}" if one.gpu else ram


def stopping(one: Server) -> str:
    stop = STOPS.get(one.name, f"kill {one.pid}")
    return f"{stop}; to give way to it for a time: lore pause --for 1h"


# ---- limits and memory -----------------------------------------------------------------------------------------------


def watches(found: Watches | None) -> Check:
    if found is None:
        return Check("watches", True, "the kernel does not tell how many folders may be watched", absent=True)
    needed = found.others + found.folders + SPARE_WATCHES
    detail = f"{found.limit:,} folders may be watched; codices have {found.folders:,}, other programs {found.others:,}"
    raised = 2 ** max(needed * 2 - 1, 1).bit_length()
    line = f"fs.inotify.max_user_watches={raised}"
    fix = f"echo {line} | sudo tee /etc/sysctl.d/60-lorekeep.conf && sudo sysctl {line}"
    return checked("watches", needed <= found.limit, detail, fix)


def swap(found: Swap | None) -> Check:
    """The model's file is mapped, not locked: what the kernel drops of it is read again from its file."""
    if found is None:
        return Check("swap", True, "the kernel does not tell of swap", absent=True)
    if not found.total:
        return Check("swap", True, "none, and none is needed; no memory is locked")
    detail = f"{size(found.used)} of {size(found.total)} used"
    if found.ours < SWAPPED:
        return Check("swap", True, f"{detail}, nothing of the daemon's that counts; no memory is locked")
    fix = "sudo swapoff -a && sudo swapon -a (when RAM is free), then a lower governor.vram_limit"
    return Check("swap", False, f"{size(found.ours)} of the daemon are in swap: answers wait for the disk", fix)


# ---- disks and rights ------------------------------------------------------------------------------------------------


def speed(rate: DiskRate, worth: Worth | None) -> Check:
    """Whether a checkpoint is read sooner than it is computed."""
    elsewhere = "set XDG_CACHE_HOME to a faster disk"
    if rate.fault:
        fix = "make room, or set XDG_CACHE_HOME to another disk"
        return Check("speed", False, f"no checkpoint can be written to {rate.folder}: {rate.fault}", fix)
    detail = f"{rate.folder} writes {size(rate.written)}/s and reads {size(rate.read)}/s"
    if worth is None:
        return Check("speed", True, detail)
    read_s = worth.bytes / rate.read
    compared = f"{detail}; 10,000 tokens: read in {many(read_s)}, computed in {many(worth.seconds)}"
    return checked("speed", read_s <= SOONER * worth.seconds, compared, elsewhere)


def many(seconds: float) -> str:
    """Of ten thousand tokens, of which one takes so long."""
    return f"{10_000 * seconds:,.2f} s"


def permissions(found: Sequence[OpenPath], uid: int, folders: Sequence[Path]) -> Check:
    """`folders`: what was looked at."""
    if not found:
        return Check("folders", True, ", ".join(map(str, folders)))
    foreign = [one for one in found if one.owner != uid]
    one, count = (foreign or list(found))[0], len(found)
    more = f", and {count - 1} more" if count > 1 else ""
    paths = " ".join(shlex.quote(str(path)) for path in tops([each.path for each in foreign or found]))
    if foreign:
        who = "root" if one.owner == 0 else f"uid {one.owner}"
        return Check("folders", False, f"{one.path} belongs to {who}{more}", f"sudo chown -R {uid} {paths}")
    return Check(
        "folders", False, f"{one.path} has mode {one.mode:04o}: others may reach it{more}", f"chmod 700 {paths}"
    )


def tops(paths: Sequence[Path]) -> list[Path]:
    """Those that lie in no other of them."""
    within = set(paths)
    return [path for path in paths if not within.intersection(path.parents)]


def clock(found: Clock) -> Check:
    ahead = found.newest - found.now
    if ahead <= AHEAD_S:
        return Check("clock", True, "nothing was written in the future")
    detail = f"{found.file} was written {ahead:,.0f} s in the future: the clock was set back since"
    return Check(
        "clock", False, detail, "timedatectl set-ntp true; traces are kept too long until it has passed that time"
    )
