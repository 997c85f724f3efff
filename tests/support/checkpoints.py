"""Segments to be kept, and a store to keep them in."""

from array import array
from pathlib import Path

from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.checkpoints.manager import CUT, segments
from orchestrator.engine.checkpoints.store import CheckpointStore, checkpoint_name

IDS = array("I", range(8 * CUT))
STATE = b"s" * 1000


def header(number: int, root: str = "root") -> SegmentHeader:
    one = list(segments(root, IDS, len(IDS), 1, len(IDS)))[number]
    return SegmentHeader(root, one.name, one.parent, one.start, one.end, IDS[one.start : one.end])


def alone(number: int) -> SegmentHeader:
    """A segment that goes on from no other."""
    ids = array("I", [number] * CUT)
    return SegmentHeader("root", checkpoint_name("root", ids), "root", 0, CUT, ids)


def store(folder: Path, budget: int = 1 << 20, root: str = "root") -> CheckpointStore:
    return CheckpointStore(root, folder, budget)
