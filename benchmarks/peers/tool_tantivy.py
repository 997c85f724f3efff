"""tantivy, a full-text engine, used as its documentation shows: a document a file, path and text, English stemming.

It is a library: which files there are and which of them changed is not its business, so a list of stamps is kept here.
"""

import json
from pathlib import Path
from typing import Any

import tantivy
from worker import serve

HEAP = 128 * 2**20  # bytes for its writer; the more, the fewer segments


class Tantivy:
    def index(self, root: Path, store: Path) -> None:
        if getattr(self, "store", None) != store:
            self.store = store
            self.opened = opened(store)
        known: dict[str, int] = stamps(store / "stamps.json")
        current = {str(path.relative_to(root)): path.stat().st_mtime_ns for path in sorted(root.rglob("*.py"))}
        changed = [name for name, stamp in current.items() if known.get(name) != stamp]
        gone = [*(known.keys() - current.keys()), *(name for name in changed if name in known)]
        if changed or gone:
            self.write(root, changed, gone)
            (store / "stamps.json").write_text(json.dumps(current))

    def write(self, root: Path, changed: list[str], gone: list[str]) -> None:
        writer = self.opened.writer(heap_size=HEAP)
        for name in gone:
            writer.delete_documents("key", name)
        for name in changed:
            text = (root / name).read_text(encoding="utf-8", errors="replace")
            writer.add_document(tantivy.Document(key=name, path=name, text=text))
        writer.commit()
        writer.wait_merging_threads()
        self.opened.reload()

    def search(self, query: str, n: int) -> list[str]:
        searcher = self.opened.searcher()
        parsed, _ = self.opened.parse_query_lenient(query, ["text", "path"])
        return [searcher.doc(at)["key"][0] for _, at in searcher.search(parsed, n).hits]


def opened(store: Path) -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("key", stored=True, tokenizer_name="raw")
    builder.add_text_field("path", tokenizer_name="en_stem")
    builder.add_text_field("text", tokenizer_name="en_stem")
    folder = store / "index"
    folder.mkdir(parents=True, exist_ok=True)
    return tantivy.Index(builder.build(), path=str(folder))


def stamps(path: Path) -> dict[str, int]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


if __name__ == "__main__":
    serve(Tantivy())
