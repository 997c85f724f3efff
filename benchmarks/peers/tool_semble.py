"""semble's lexical half: its chunks, its BM25 and its code-aware ranking, with no weight on vectors (alpha 0).

Its embedding model is fetched from a hub at the first use and has no place in an offline run. semble insists on one, so
it gets one of two numbers a word, which weigh nothing; what embedding would take and bring is therefore not in its figures.
"""

import os
from pathlib import Path

import numpy
from model2vec import StaticModel
from semble import SembleIndex
from semble.cache import save_index_to_cache
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from worker import serve


class Semble:
    def index(self, root: Path, store: Path) -> None:
        os.environ["SEMBLE_CACHE_LOCATION"] = str(store)
        self.found = SembleIndex.from_path(root, model_path=str(model(store / "model")))
        save_index_to_cache(self.found, str(root))

    def search(self, query: str, n: int) -> list[str]:
        hits = self.found.search(query, top_k=n, alpha=0.0, max_snippet_lines=0)
        return list(dict.fromkeys(hit.chunk.file_path for hit in hits))


def model(folder: Path) -> Path:
    if not folder.exists():
        tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "[PAD]": 1}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = Whitespace()
        StaticModel(numpy.ones((2, 2), dtype=numpy.float32), tokenizer).save_pretrained(str(folder))
    return folder


if __name__ == "__main__":
    serve(Semble())
