"""A daemon on a GPU, by a stand-in driver whose memory the test sets.

The real NVML wrapper reads the stand-in. The settings name that GPU, so its memory counts although the engine computes on
the CPU.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from private_daemon import PrivateDaemon
from support.house import living, reply, until
from support.nvml import GIB, StandIn, compiled

TOTAL, FREE, OWN = 8 * GIB, 7 * GIB, GIB // 4  # at the start; what is ours is told after it and stays the same
CEILING = TOTAL - GIB // 2  # the margin


@contextmanager
def on_a_card(
    models: Path, folder: Path, config: str = "", dwell_s: float = 0.2
) -> Iterator[tuple[PrivateDaemon, StandIn]]:
    """A running daemon and its driver, whose files are in `folder`. Levels change after `dwell_s`. `config` is more of its
    config.toml, the first lines in `[governor]`."""
    driver = StandIn(folder, compiled(models.parent))
    driver.show(total=TOTAL, free=FREE)
    dwell = f"worse_after = {dwell_s}\nbetter_after = {dwell_s}\n"
    settings = f'[governor]\ngpu = "0"\n{dwell}sensor_busy = 0.05\nsensor_idle = 0.1\n{config}'
    with living(models, settings, environment=driver.environment) as daemon:
        driver.show(processes=f"{daemon.process.pid}:{OWN}")
        yield daemon, driver


def fixed(daemon: PrivateDaemon) -> int:
    """Bytes of ours that are no KV, as the daemon tells once a first pool is open."""

    def told() -> int:
        return int(reply(daemon, "/v1/status")["governor"]["fixed_bytes"])

    until(lambda: told() > OWN // 2)
    return told()


def leave_room_for_kv(daemon: PrivateDaemon, driver: StandIn, kv: int) -> None:
    """Others take so much that `kv` bytes are left: ceiling - others - fixed, where others = total - free - own."""
    driver.show(free=kv + fixed(daemon) - CEILING + TOTAL - OWN)


@contextmanager
def scarce(
    models: Path, folder: Path, kv: int, load: Callable[[PrivateDaemon], object], config: str = ""
) -> Iterator[PrivateDaemon]:
    """What `load` computes is there before memory is down to `kv` bytes, which are fewer than 4,096 cells. No
    level changes. `config` as in `on_a_card`."""
    with on_a_card(models, folder, config, dwell_s=3600) as (daemon, driver):
        load(daemon)
        leave_room_for_kv(daemon, driver, kv)
        until(lambda: reply(daemon, "/v1/status")["governor"]["cells"] < 4_096)
        yield daemon
