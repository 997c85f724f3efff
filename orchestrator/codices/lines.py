"""How many lines each file of a codex has, as it stands after its log: read when somebody cites it, and not before."""

from collections.abc import Callable, Iterator, Mapping

from codex.documents import Document, lines
from codex.errors import CodexError

Read = Callable[[str, str], Document]


class Lines(Mapping[str, int]):
    """Lines by path. `digests`: what stands, by path; `read` gives the document of a path and digest."""

    def __init__(self, digests: Mapping[str, str], read: Read) -> None:
        self._digests = digests
        self._read = read
        self._counted: dict[str, int] = {}

    def __getitem__(self, path: str) -> int:
        if path not in self._counted:
            digest = self._digests[path]
            try:
                self._counted[path] = len(lines(self._read(path, digest).text))
            except CodexError:
                return 0  # no longer kept: nothing can be said of its lines, so no place in it is vouched for
        return self._counted[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._digests)

    def __len__(self) -> int:
        return len(self._digests)

    def __contains__(self, path: object) -> bool:
        return path in self._digests
