"""A daemon on a GPU, by a stand-in driver, that has room for so much KV and no more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from private_daemon import PrivateDaemon
from support.house import living, reply, until
from support.nvml import GIB, StandIn, compiled

TOTAL, FREE, OWN = 8 * GIB, 7 * GIB, GIB // 4
CEILING = TOTAL - GIB // 2  # the margin
SETTINGS = '[governor]\ngpu = "0"\nworse_after = 3600\nbetter_after = 3600\nsensor_busy = 0.05\nsensor_idle = 0.1\n'


def fixed(daemon: PrivateDaemon) -> int:
    """Bytes of ours that are no KV, as the daemon tells."""
    return int(reply(daemon, "/v1/status")["governor"]["fixed_bytes"])


@contextmanager
def scarce(
    models: Path, folder: Path, kv: int, load: Callable[[PrivateDaemon], object], config: str = ""
) -> Iterator[PrivateDaemon]:
    """What `load` computes is there before memory is down to `kv` bytes, which are fewer than 4,096 cells. `config` is more
    of its config.toml. What is fixed is known once a first pool is open."""
    driver = StandIn(folder, compiled(models.parent))
    driver.show(total=TOTAL, free=FREE)
    with living(models, SETTINGS + config, environment=driver.environment) as daemon:
        driver.show(processes=f"{daemon.process.pid}:{OWN}")
        load(daemon)
        until(lambda: fixed(daemon) > OWN // 2)
        driver.show(free=kv + fixed(daemon) - CEILING + TOTAL - OWN)
        until(lambda: reply(daemon, "/v1/status")["governor"]["cells"] < 4_096)
        yield daemon
