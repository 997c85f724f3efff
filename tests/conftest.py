"""What every test may ask for by name. Nothing stands in for a part of the program: models and daemons are real."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))  # scripts are programs, not a package; demo, benchmarks and tests share private_daemon

import private_daemon as private  # noqa: E402 - found through the line above
from llama_sources import build_cache  # noqa: E402

# The same examples on every machine in CI; deadlines measure the machine, not the code.
settings.register_profile("local", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True, print_blob=True)
settings.register_profile("nightly", parent=settings.get_profile("local"), max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "local"))

OUTSIDE = dict(os.environ)  # as the run was started
BUILD_CACHE = build_cache()  # what was compiled, fetched and built once, for every run

# A shell that starts the suite in the background has SIGINT ignored, which children inherit: Ctrl-C could not be tested.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    # In several processes: files in the order of their folders, so that whole daemons come first and quick units even out
    # the end. By number of tests, as it would be, the daemons come last, and one process waits for the other.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_finish() -> None:
    """Half a million objects of modules and tests need not be looked through again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_folders() -> Iterator[None]:
    """No test reads or writes the user's configuration, data or caches."""
    with tempfile.TemporaryDirectory(prefix="lore-tests-") as folder, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("LORE_")]:
            patch.delenv(name)
        for name, value in private.private_environment(Path(folder)).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def llama_sources() -> Path:
    """llama.cpp's tree in the locked version, with `models/ggml-vocab-*.gguf` and `models/templates/*.jinja`."""
    done = subprocess.run(
        [sys.executable, SCRIPTS / "llama_sources.py"], env=OUTSIDE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip()) / "vendor" / "llama.cpp"


@pytest.fixture(scope="session")
def models() -> Path:
    """Where the built-in models lie. Kept between runs: their names hold a hash of their recipe."""
    return BUILD_CACHE / "models"


@pytest.fixture(scope="session")
def quoter_model(models: Path) -> Path:
    """The file of the built-in quoting model."""
    from orchestrator.engine.builtin import ensure

    return ensure("builtin:quoter", models)


@pytest.fixture(scope="session")
def qwen_model(models: Path) -> Path:
    """Random weights: seven heads a KV head, heads of 128, 151,936 words of byte-level BPE."""
    from shaped_models import QWEN, shaped

    return shaped(replace(QWEN, layers=2, width=64), models)


@pytest.fixture(scope="session")
def gemma_model(models: Path) -> Path:
    """Random weights: five of six layers see 512 tokens, heads of 256, 262,144 words of SentencePiece."""
    from shaped_models import GEMMA, shaped

    return shaped(replace(GEMMA, width=64), models)


@pytest.fixture(scope="module")
def forked_engines() -> Iterator[None]:
    """An engine that a test starts without a daemon is a fork of a process that has imported what that needs."""
    from support.forks import ChildProcess, start_engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChildProcess, "start", classmethod(start_engine))
        yield


@pytest.fixture(scope="session")
def shared_daemon(models: Path) -> Iterator[private.PrivateDaemon]:
    """One of all the files that need no daemon of their own, through `lent`: a start and the first load's imports take
    four seconds of a processor."""
    from support.house import living

    with living(models) as daemon:
        yield daemon


@pytest.fixture
def new_daemon(models: Path) -> Iterator[Callable[..., private.PrivateDaemon]]:
    """Makes daemons that are not started yet, each in a folder of its own: `new_daemon(model=..., environment=...)`."""
    with tempfile.TemporaryDirectory(prefix="lore-") as folder:
        made: list[private.PrivateDaemon] = []

        def make(model: str | None = None, environment: dict[str, str] | None = None) -> private.PrivateDaemon:
            place = Path(folder) / str(len(made))
            made.append(private.PrivateDaemon(place, model=model, models=models, environment=environment))
            return made[-1]

        try:
            yield make
        finally:
            for daemon in made:
                daemon.stop()


@pytest.fixture
def daemon(new_daemon: Callable[..., private.PrivateDaemon]) -> private.PrivateDaemon:
    """A running daemon on the built-in model: `daemon.lore("status")`, `daemon.json("status")`."""
    return new_daemon().start()
