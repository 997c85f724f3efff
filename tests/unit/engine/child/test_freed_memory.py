"""What a closed context held is the kernel's again: asked of the real C library, in a process of its own."""

import subprocess
import sys

import pytest

CONTEXT = 30_000_000  # bytes: glibc puts blocks of this size into its heap, once one of them was freed
SCRIPT = f"""
import ctypes
from pathlib import Path
from orchestrator.engine.child.worker import give_back_at_once

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]

def opened():
    place = libc.malloc({CONTEXT})
    ctypes.memset(place, 1, {CONTEXT})
    return place

def held():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("RssAnon"))

SETUP
libc.free(opened())
before = held()
context, behind = opened(), libc.malloc(100_000)
libc.free(context)
print(held() - before)
"""


def kept(setup: str) -> int:
    """Bytes, after a context was closed while something smaller that came after it stays."""
    script = SCRIPT.replace("SETUP", setup)
    return int(subprocess.run([sys.executable, "-P", "-c", script], check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's heap")
def test_a_context_that_is_closed_leaves_no_hole_in_the_heap() -> None:
    assert kept("") > CONTEXT * 0.9  # else there is nothing to mend any more
    assert kept("give_back_at_once()") < CONTEXT * 0.1
