"""Makes `.venv` with everything of both lock files in it and this checkout on top; instant when nothing has changed.

Runs by any Python that `python.sh` finds, with the standard library alone. llama-cpp-python comes first, as a wheel
compiled for this machine and cached (`llama_wheel.py`): pip alone would compile it anew for every environment, and
without CUDA.
"""

import hashlib
import subprocess
import sys
import time
import venv

import llama_wheel
import watched
from llama_sources import DEV_LOCK, LOCK, ROOT, locked_version, say

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed"


def main() -> None:
    wanted = fingerprint()
    if is_installed(wanted):
        return
    begun = time.monotonic()
    make_environment()
    install_llama()
    install_locked()
    install_checkout()
    STAMP.write_text(wanted)
    say(f"Installed in {time.monotonic() - begun:.0f} s. Try: . .venv/bin/activate && lore --help; or make demo")


def fingerprint() -> str:
    """Changes whenever installing again would give something else: a GPU or nvcc that appeared counts."""
    version = locked_version(LOCK)
    key = llama_wheel.wheel_key(version, llama_wheel.build_flags(llama_wheel.find_gpu()))
    files = [LOCK, DEV_LOCK, ROOT / "pyproject.toml"]
    return hashlib.sha256(b"\0".join([key.encode(), *(file.read_bytes() for file in files)])).hexdigest()


def is_installed(wanted: str) -> bool:
    return STAMP.exists() and STAMP.read_text() == wanted and PYTHON.exists()


def make_environment() -> None:
    if not PYTHON.exists():
        say(f"Making .venv with Python {sys.version.split()[0]}.")
        venv.create(VENV, with_pip=True)


def install_llama() -> None:
    """By the environment's own Python, whose pip is known to be there."""
    made = subprocess.run([PYTHON, ROOT / "scripts" / "llama_wheel.py"], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode != 0:
        raise SystemExit(made.returncode)
    wheel = made.stdout.strip()
    if not is_wheel_installed(wheel):
        pip("install", "--no-deps", "--force-reinstall", wheel)
        (VENV / "llama-wheel").write_text(wheel)


def is_wheel_installed(wheel: str) -> bool:
    """Version numbers do not tell a CPU wheel from a CUDA one, so the path installed from is kept."""
    mark = VENV / "llama-wheel"
    return mark.exists() and mark.read_text() == wheel


def install_locked() -> None:
    say("Installing the locked dependencies.")
    locks = [option for lock in (LOCK, DEV_LOCK) for option in ("--requirement", str(lock))]
    words = ["--progress-bar", "off", "--disable-pip-version-check", "--require-hashes", *locks]
    if (
        watched.run([PYTHON, "-P", "-m", "pip", "install", *words], "Installing", watched.Installed((LOCK, DEV_LOCK)))
        != 0
    ):
        raise SystemExit("Installing the locked dependencies failed; pip's last words are above.")


def install_checkout() -> None:
    pip("install", "--no-deps", "--editable", str(ROOT))


def pip(command: str, *arguments: str) -> None:
    done = subprocess.run(
        [PYTHON, "-P", "-m", "pip", command, "-qq", "--disable-pip-version-check", *arguments],
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"`pip {command} {' '.join(arguments)}` failed; its words are above.")


if __name__ == "__main__":
    main()
