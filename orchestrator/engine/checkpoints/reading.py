"""Reads checkpoint files, one ahead of the loop: while a segment goes into the cells, the next is read and verified."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.engine.checkpoints.file import SegmentHeader, read_state


@dataclass
class Reader:
    """Used by one thread, the loop's."""

    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "reading"))
    _ahead: tuple[Path, SegmentHeader, "Future[bytes]"] | None = None

    def expect(self, path: Path, header: SegmentHeader) -> None:
        """Begins to read what is likely to be asked for next; forgets what was expected before."""
        self._ahead = path, header, self._thread.submit(read_state, path, header)

    def read(self, path: Path, header: SegmentHeader) -> bytes:
        """The verified state. Raises DamagedCheckpoint and OSError."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[:2] == (path, header):
            return ahead[2].result()
        return read_state(path, header)

    def settle(self) -> None:
        """Forgets what was expected, once no file is open."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            wait([ahead[2]])

    def close(self) -> None:
        self.settle()
        self._thread.shutdown()
