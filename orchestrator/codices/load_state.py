"""The states of a load while it runs; that it has ended is its task's to know.

RUNNING ──last step done──▶ COMMITTED
   │ a person                  │
   ▼                           │ the program ends
CANCELLED ─────────────────▶ CUT ◀── also from RUNNING
"""

from enum import StrEnum


class LoadState(StrEnum):
    RUNNING = "running"
    COMMITTED = "committed"  # nobody can cancel it any more
    CANCELLED = "cancelled"  # it goes back to what stood before
    CUT = "cut"  # it leaves what it has, and the next load continues


ALLOWED = {
    LoadState.RUNNING: {LoadState.COMMITTED, LoadState.CANCELLED, LoadState.CUT},
    LoadState.COMMITTED: {LoadState.CUT},
    LoadState.CANCELLED: {LoadState.CUT},
    LoadState.CUT: set[LoadState](),
}
