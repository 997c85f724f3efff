"""A stand-in NVIDIA driver for tests: compiles `fake_nvml.c`, writes its values, says how a process comes to load it.

The library is loaded in place of the driver's by the dynamic linker, so the code under test runs the real pynvml. Values
are replaced in one step while the program runs.

    driver = StandIn(folder, compiled(cache))
    driver.show(total=24 * GIB, free=20 * GIB)
    subprocess.Popen([...], env=os.environ | driver.environment)
    driver.show(free=2 * GIB)
"""

import hashlib
import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).resolve().with_name("fake_nvml.c")
SONAME = "libnvidia-ml.so.1"
GIB = 1024**3


def compiled(cache: Path, *flags: str) -> Path:
    """The folder with the compiled library, made once per source and flags."""
    key = hashlib.sha256(SOURCE.read_bytes() + " ".join(flags).encode()).hexdigest()[:16]
    folder = cache / f"nvml-{key}"
    if not (folder / SONAME).exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / f"{SONAME}.{os.getpid()}"
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", *flags, f"-Wl,-soname,{SONAME}"]
        subprocess.run([*command, "-o", made, SOURCE], check=True, capture_output=True)
        made.replace(folder / SONAME)
    return folder


class StandIn:
    """One driver with its values. Its first GPU is there from the start, with 24 GiB of which all but 1 GiB is free."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.file = folder / "nvml.values"
        self.log = folder / "nvml.log"
        self.environment = {
            "LD_LIBRARY_PATH": str(library),
            "FAKE_NVML_FILE": str(self.file),
            "FAKE_NVML_LOG": str(self.log),
        }
        self._values: dict[str, object] = {"count": 1}
        self.show(
            name="NVIDIA Stand-in", uuid="GPU-5f3a0000-0000-0000-0000-000000000000", total=24 * GIB, free=23 * GIB
        )
        self.show(utilisation=3, power=60_000, power_limit=350_000, power_default=350_000, temperature=41, pstate=8)
        self.show(reasons=1, processes="")

    def show(self, gpu: int = 0, **values: object) -> None:
        """What that GPU says from now on; None takes a value away."""
        self.set(**{f"{gpu}.{name}": value for name, value in values.items()})

    def fail(self, symbol: str, code: int | None) -> None:
        """That call returns this NVML error code from now on; None lets it answer again."""
        self.set(**{f"err.{symbol}": code})

    def hang(self, symbol: str, *, on: bool = True) -> None:
        """That call does not return from now on, or returns again."""
        self.set(**{f"hang.{symbol}": 1 if on else None})

    def set(self, **values: object) -> None:
        self._values |= values
        lines = [f"{name} {value}\n" for name, value in self._values.items() if value is not None]
        fresh = self.file.with_suffix(".fresh")
        fresh.write_text("".join(lines))
        fresh.replace(self.file)

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []
