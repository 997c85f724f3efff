"""Names the machine that figures belong to."""

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from llama_wheel import find_gpu


def machine() -> dict[str, Any]:
    gpu = find_gpu()
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "ram_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "gpu": gpu.name if gpu else None,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "llama_cpp_python": version("llama-cpp-python"),
        "load_before": os.getloadavg()[0],  # above 0.5 somebody else was computing, and ratios are all that can be read
    }


def sentence(about: dict[str, Any]) -> str:
    device = about["gpu"] or "no GPU"
    return (
        f"{about['cpu']}, {about['cores']} cores, {about['ram_gib']} GiB RAM, {device}; "
        f"llama-cpp-python {about['llama_cpp_python']}, Python {about['python']}; load before {about['load_before']:.2f}"
    )


def cpu_name() -> str:
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    return found[1] if found else platform.machine()
