"""aider's repository map: definitions and references of every file in a cache on disk, ranked anew for each message.

Words and file names of a message weigh in as aider itself takes them from a message (`get_ident_mentions`,
`get_ident_filename_matches` and `get_file_mentions` of its coder); files come in the order of their best tag. The cache
lies inside the repository, where aider puts it.
"""

import re
from pathlib import Path

from aider.repomap import RepoMap
from worker import serve

FEWEST_LETTERS = 5  # of a file's name, for aider to take a word as its mention


class Console:
    """What the map wants of aider's terminal."""

    def tool_output(self, *words: object) -> None:
        pass

    tool_warning = tool_error = tool_output

    def read_text(self, path: str) -> str:
        return Path(path).read_text(encoding="utf-8", errors="replace")


class Aider:
    def index(self, root: Path, store: Path) -> None:
        del store
        if getattr(self, "root", None) != root:
            self.root = root
            self.map = RepoMap(root=str(root), io=Console())
        self.files = [str(path) for path in sorted(root.rglob("*.py"))]
        for path in self.files:
            self.map.get_tags(path, self.map.get_rel_fname(path))

    def search(self, query: str, n: int) -> list[str]:
        idents = set(re.split(r"\W+", query))
        mentioned = self.named(query) | self.matched(idents)
        ranked = self.map.get_ranked_tags([], self.files, mentioned, idents)
        return list(dict.fromkeys(tag[0] for tag in ranked))[:n]

    def named(self, query: str) -> set[str]:
        words = {word.rstrip(",.!;:?").strip("\"'`*_") for word in query.split()}
        return {name for name in map(self.map.get_rel_fname, self.files) if name in words}

    def matched(self, idents: set[str]) -> set[str]:
        wanted = {ident.lower() for ident in idents if len(ident) >= FEWEST_LETTERS}
        return {self.map.get_rel_fname(path) for path in self.files if Path(path).stem.lower() in wanted}


if __name__ == "__main__":
    serve(Aider())
