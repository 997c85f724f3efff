"""What search puts first, what it never makes up, and the lines that it shows of a chunk."""

from collections.abc import Iterable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.memory_archive import MemoryArchive
from support.memory_vectors import MemoryVectors
from support.word_embedder import WordEmbedder

from codex.archive.archive import Archive
from codex.archive.queries import ChunkPlace
from codex.documents import Document
from codex.searching.ranking import by_rank
from codex.searching.search import Search, SearchResult, snippet
from codex.vectors.filling import fill

TEXT = "# head\n\ndef one():\n    pass\n\ndef two():\n    walrus()\n"
FILES = {
    "src/parse.py": "def parse_header(line):\n    return split_fields(line)\n",
    "src/fields.py": "def split_fields(text):\n    return text.partition(':')\n",
    "src/report.py": "# parse header here and there: parse header\nprint('parse header')\n",
    "tests/test_parse.py": "def test_parse_header():\n    assert parse_header('a: b')  # parse header line\n",
    "vendor/parse.py": "def parse_header(line):\n    return line\n",
}


def search(files: dict[str, str] = FILES) -> Search:
    archive = MemoryArchive()
    archive.replace("c", [Document(path, text, path, len(text)) for path, text in files.items()])
    return Search(archive)


def paths(query: str, n: int = 10, files: dict[str, str] = FILES) -> list[str]:
    return [hit.path for hit in search(files).search(query, "c", n).hits]


def test_a_definition_comes_before_mentions_and_a_source_before_its_test() -> None:
    found = paths("how is the header line parsed")
    assert found[0] == "src/parse.py"
    assert found.index("src/parse.py") < found.index("tests/test_parse.py")


def test_a_name_alone_is_answered_by_where_it_is_defined_however_often_a_file_uses_it() -> None:
    body = "".join(
        f"    def add_{n}(self, command):\n        return self.command(command, Command)\n\n" for n in range(90)
    )
    files = {
        "core.py": f"class Command:\n    pass\n\n\nclass Other:\n{body}",
        "use.py": "from core import Command\n\nCommand(Command(Command))\n",
    }
    found = search(files).search("Command", "c").hits[0]
    assert (found.path, found.start) == ("core.py", 1)


def test_tests_come_first_when_they_are_asked_for() -> None:
    assert paths("which test checks test_parse_header?")[0] == "tests/test_parse.py"


def test_where_tests_are_wanted_a_source_stands_below_its_test_even_if_its_words_fit_better() -> None:
    files = {
        "src/parse.py": "def parse_header(line):\n    return line  # the header line\n",
        "tests/test_parse.py": "def test_header():\n    assert parse_header('a: b') == 'a: b'\n",
    }
    assert paths("parse_header line", files=files) == ["src/parse.py", "tests/test_parse.py"]
    assert paths("which tests cover parse_header line", files=files) == ["tests/test_parse.py", "src/parse.py"]


def test_where_tests_are_wanted_what_they_use_is_no_answer() -> None:
    hits = search().search("which tests cover parse_header", "c").hits
    assert not any("graph" in hit.scores for hit in hits)
    assert "src/fields.py" not in [hit.path for hit in hits]


def test_a_chunk_that_uses_many_names_of_a_file_points_at_it_no_harder_than_by_one() -> None:
    hub = "def alpha():\n    pass  # parse_header\n\n\ndef beta():\n    pass\n"
    one, many = "def parse_header(line):\n    alpha()\n", "def parse_header(line):\n    alpha()\n    beta()\n"
    graph = [
        next(hit for hit in search(files).search("parse_header", "c").hits if hit.path == "src/hub.py").scores["graph"]
        for files in ({"src/parse.py": one, "src/hub.py": hub}, {"src/parse.py": many, "src/hub.py": hub})
    ]
    assert graph[0] == graph[1] > 0


def test_vendored_copies_come_last() -> None:
    assert paths("parse_header")[0] == "src/parse.py"
    assert paths("parse_header")[-1] == "vendor/parse.py"


def test_what_the_best_chunk_uses_comes_before_what_holds_as_much() -> None:
    files = {
        **{f"src/{name}.py": f"def {name}(text):\n    return text  # a line\n" for name in ("aside", "split_fields")},
        "src/parse.py": "def parse_header(line):\n    return split_fields(line)\n",
    }
    hits = search(files).search("how does parse_header read a line", "c").hits
    assert [hit.path for hit in hits] == ["src/parse.py", "src/split_fields.py", "src/aside.py"]
    assert hits[1].scores["graph"] > 0


def test_what_is_used_by_everything_and_holds_no_word_of_the_question_is_no_hit() -> None:
    hub = {"types.py": "Scope = dict\n"}
    users = {f"{name}.py": f"def {name}(scope: Scope) -> Scope:\n    return scope\n" for name in ("begin", "finish")}
    for question in ("begin", "finish", "where does it begin to finish"):
        found = search({**hub, **users}).search(question, "c").hits
        assert "types.py" not in [hit.path for hit in found]
        assert all(hit.scores["chunk"] > 0 for hit in found)


def test_a_chunk_without_a_word_of_the_question_leads_on_to_one_of_its_file_that_has_some() -> None:
    hub = "def split_fields(text):\n    return text\n" + "\n" * 60 + "def other():\n    return 'header'\n"
    files = {**FILES, "src/fields.py": hub + "    x = 1\n" * 60}
    hits = [hit for hit in search(files).search("header", "c").hits if hit.path == "src/fields.py"]
    assert hits
    assert all("header" in hit.text for hit in hits)


def test_scores_fall_and_stay_apart_by_kind() -> None:
    hits = search().search("parse header line", "c").hits
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert {"chunk", "file", "role"} <= set(hits[0].scores)


def test_files_differ_before_chunks_repeat() -> None:
    body = "    value = widget_size\n" * 40
    files = {"big.py": "".join(f"def widget_{n}():\n{body}" for n in range(5)), "small.py": "widget = 1\n"}
    assert len(set(paths("widget size", 2, files))) == 2
    assert paths("widget size", 10, files).count("big.py") == 5


def test_what_is_to_be_read_has_all_places_of_the_best_file_before_a_worse_one() -> None:
    body = "    value = widget_size\n" * 40
    files = {
        "big.py": "".join(f"def widget_{n}():\n{body}" for n in range(3)),
        "small.py": "a, b = c, d\n" * 30 + "size = 1\n",
    }
    found = search(files)
    assert [hit.path for hit in found.search("widget size", "c", 4).hits] == ["big.py", "small.py", "big.py", "big.py"]
    passages = found.search("widget size", "c", 4, passages=True).hits
    assert [hit.path for hit in passages] == ["big.py"] * 3 + ["small.py"]
    assert [hit.score for hit in passages] == sorted((hit.score for hit in passages), reverse=True)


def test_what_is_to_be_read_has_the_definition_that_the_best_place_uses_before_others_that_speak_of_it_as_much() -> (
    None
):
    filler = "    rest = rest + 1\n" * 30
    files = {
        "sizes.py": "".join(
            f"def {name}(value):\n{filler}    return widget + {used}\n\n\n"
            for name, used in (("widget_size", "clamped(1)"), ("aaa", "2"), ("bbb", "3"), ("clamped", "4"))
        )
    }
    passages = search(files).search("widget size", "c", 4, passages=True).hits
    assert [hit.symbol for hit in passages] == ["widget_size", "clamped", "aaa", "bbb"]


def test_what_is_to_be_read_has_what_the_best_place_uses_also_where_it_has_no_word_of_the_question() -> None:
    filler = "    rest = rest + 1\n" * 30
    files = {
        "board.py": "".join(
            f"def {name}(value):\n{filler}    return {used}\n\n\n"
            for name, used in (("widget_size", "clamped(widget)"), ("other", "other(3)"), ("clamped", "4"))
        )
    }
    assert [hit.symbol for hit in search(files).search("widget size", "c").hits] == ["widget_size"]
    assert [hit.symbol for hit in search(files).search("widget size", "c", passages=True).hits] == [
        *("widget_size", "clamped")
    ]


def methods(names: Iterable[str], indent: str = "    ") -> str:
    """Methods too long to be one chunk with a neighbour."""
    return "".join(
        f"{indent}def {name}(self):\n" + f"{indent}    rest = self.rest + 1\n" * 30 + f"{indent}    return {name}\n\n"
        for name in names
    )


CLASS = (
    "class Shelf(Board, Furniture):\n"
    '    """Holds books."""\n\n'
    "    boards = 3\n\n" + methods(["first", "fits_widget", "last_widget"]) + "class Other:\n" + methods(["other"])
)


def test_behind_a_method_that_is_to_be_read_comes_the_head_of_its_class_once() -> None:
    found = search({"shelf.py": CLASS})
    passages = found.search("does the widget fit", "c", passages=True).hits
    assert [hit.symbol for hit in passages] == ["Shelf.fits_widget", "Shelf", "Shelf.last_widget"]
    assert (passages[1].start, passages[1].text) == (1, "\n".join(CLASS.split("\n")[:5]))
    assert passages[1].signature == "class Shelf(Board, Furniture)"
    assert len(found.search("does the widget fit", "c", 2, passages=True).hits) == 2
    assert [hit.symbol for hit in found.search("does the widget fit", "c").hits] == [
        *("Shelf.fits_widget", "Shelf.last_widget")
    ]


def java(names: Iterable[str]) -> str:
    return "".join(f"  {name}(int w) {{\n" + "    rest = rest + 1;\n" * 40 + "  }\n\n" for name in names)


def test_a_constructor_is_no_head_though_it_has_the_name_of_its_class() -> None:
    body = java(["int first", "public Shelf", "boolean fitsWidget"])
    found = search({"Shelf.java": "public class Shelf extends Board {\n  int boards = 3;\n\n" + body + "}\n"})
    passages = found.search("fitsWidget", "c", passages=True).hits
    assert [(hit.symbol, hit.start, hit.end) for hit in passages[:2]] == [
        ("Shelf.fitsWidget", 90, 131),
        ("Shelf", 1, 3),
    ]
    body = java(["public Shelf", "bool FitsWidget"])  # of C# a class that is cut off is not found
    found = search({"Shelf.cs": "namespace N {\npublic class Shelf : Board {\n  int boards = 3;\n\n" + body + "}\n}\n"})
    assert [hit.symbol for hit in found.search("FitsWidget", "c", passages=True).hits] == ["N.Shelf.FitsWidget"]


def test_a_head_is_read_once_though_its_class_is_called_by_two_names() -> None:
    body = "".join(
        f"int {name}(int w) {{\n" + "  rest = rest + 1;\n" * 40 + "}\n\n"
        for name in ("ns::Shelf::fits_widget", "Shelf::last_widget")
    )
    text = "namespace ns {\nclass Shelf : public Board {\n  int boards = 3;\n};\n}\n\n"
    found = search({"shelf.cpp": text + body}).search("widget", "c", passages=True).hits
    assert [hit.start for hit in found if hit.symbol.endswith("Shelf")] == [2]


def test_a_head_that_is_read_anyway_is_not_read_twice() -> None:
    short = "class Shelf:\n    def fits_widget(self):\n        return self.widget\n"
    assert [hit.end for hit in search({"shelf.py": short}).search("widget", "c", passages=True).hits] == [3]


@given(
    st.lists(st.sampled_from(["widget_one", "widget_two", "plain", "other"]), min_size=1, max_size=4, unique=True),
    st.integers(0, 3),
    st.integers(0, 2),
)
def test_a_passage_is_the_lines_that_it_says(names: list[str], blank: int, deep: int) -> None:
    heads = [
        f"{'    ' * at}class Shelf{at}:\n{'    ' * at}    boards = {at}\n" + "\n" * blank for at in range(deep + 1)
    ]
    text = "import os\n\n\n" + "".join(heads) + methods(names, "    " * (deep + 1))
    for hit in search({"shelf.py": text}).search("widget boards", "c", passages=True).hits:
        assert hit.text == "\n".join(text.split("\n")[hit.start - 1 : hit.end])


def test_nothing_is_found_for_nothing() -> None:
    assert search().search("", "c") == SearchResult()
    assert search().search("?!", "c") == SearchResult()
    assert search().search("zzzz", "c") == SearchResult()
    assert search().search("parse", "nobody") == SearchResult()
    assert search().search("parse", "c", 0) == SearchResult()


def test_the_same_question_gives_the_same_list() -> None:
    assert search().search("parse header", "c") == search().search("parse header", "c")


EXACT = {
    "src/errors.py": 'raise ValueError("no such header here")\n',
    "src/header.py": "def header():\n    # such a header, no header here, header\n    return no_such_header(here)\n",
    "tests/test_errors.py": 'assert message == "no such header here"\n',
}


def test_a_quoted_string_comes_before_its_words() -> None:
    hits = search(EXACT).search('where is "no such header here" raised?', "c").hits
    assert [hit.path for hit in hits] == ["src/errors.py", "tests/test_errors.py", "src/header.py"]
    assert [hit.scores.get("exact") for hit in hits] == [1.0, 1.0, None]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_all_chunks_that_hold_a_quoted_string_come_before_its_words_and_are_counted() -> None:
    body = "    value = 1\n" * 40
    many = "".join(f"def f{number}():\n    at_least = '<size>'\n{body}" for number in range(3))
    found = search({"many.py": many, "one.py": "def size():\n    return size\n"}).search('"<size>"', "c")
    assert [(hit.path, hit.scores.get("exact")) for hit in found.hits][:4] == [
        *[("many.py", 1.0)] * 3,
        ("one.py", None),
    ]
    assert [hit.score for hit in found.hits] == sorted((hit.score for hit in found.hits), reverse=True)
    assert found.holding == {"many.py": 3}
    assert search({"many.py": many}).search('"<size>"', "c", 1).holding == {"many.py": 3}


def test_a_quoted_string_that_nothing_holds_is_searched_by_its_words_and_said() -> None:
    found = search(EXACT).search('"such header no"', "c")
    assert "src/header.py" in [hit.path for hit in found.hits]
    assert found.notices == ("nothing holds 'such header no' as it is; searched by its words",)


def test_the_line_that_holds_the_string_is_shown() -> None:
    text = "such = header = here = no = where = raised = 1\n\n\n\n\nx = '<no such>'\n"
    assert search({"a.py": text}).search('"<no such>"', "c").hits[0].snippet == "x = '<no such>'"


def with_vectors(embedder: WordEmbedder) -> Search:
    archive, vectors = search().archive, MemoryVectors()
    fill(archive, vectors, embedder, "c")
    return Search(archive, embedder, vectors)


def test_vectors_count_only_when_someone_gives_them() -> None:
    hits = with_vectors(WordEmbedder()).search("parse header", "c").hits
    assert 0 < hits[0].scores["vector"] <= 1
    assert "vector" not in search().search("parse header", "c").hits[0].scores


def test_without_vectors_an_embedder_changes_nothing() -> None:
    plain = search().search("parse header", "c")
    assert Search(search().archive, WordEmbedder(), MemoryVectors()).search("parse header", "c") == plain


def test_a_model_that_is_gone_takes_away_only_the_search_by_meaning_and_it_is_said() -> None:
    embedder = WordEmbedder()
    found = with_vectors(embedder)
    embedder.lasts = 0
    answer = found.search("parse header", "c")
    assert answer.hits == search().search("parse header", "c").hits
    assert answer.notices == ("searched by words and names only: the model is gone",)


def test_the_same_search_is_remembered_until_a_file_or_a_vector_is_another_one(tmp_path: Path) -> None:
    archive, vectors, embedder = Archive(tmp_path), MemoryVectors(), WordEmbedder()
    files = [Document(path, text, path, len(text)) for path, text in FILES.items()]
    kept = Search(archive, embedder, vectors)

    def found() -> SearchResult:
        first = kept.search("parse header", "c", passages=True)
        fresh = Search(archive, embedder, vectors).search("parse header", "c", passages=True)
        assert first == fresh
        assert kept.search("parse header", "c", passages=True) is first
        assert kept.search("parse header", "c") is not first  # another list: not of passages
        return first

    archive.replace("c", files[:2])
    some = found()
    archive.replace("c", files[2:])
    more = found()
    fill(archive, vectors, embedder, "c")
    by_meaning = found()
    archive.drop("c")
    assert (len(some.hits) < len(more.hits), found().hits) == (True, ())
    assert ["vector" in each.hits[0].scores for each in (some, more, by_meaning)] == [False, False, True]


def test_what_a_fault_took_away_is_looked_for_again() -> None:
    embedder = WordEmbedder()
    found = with_vectors(embedder)
    embedder.lasts = 0
    assert found.search("parse header", "c").notices
    embedder.lasts = 9
    assert "vector" in found.search("parse header", "c").hits[0].scores


def test_the_last_searches_alone_are_remembered() -> None:
    kept = search()
    first = kept.search("parse header", "c")
    for number in range(20):
        kept.search(f"parse {number}", "c")
    assert kept.search("parse header", "c") is not first


def test_a_share_by_rank_halves_at_the_sixtieth_place() -> None:
    shares = by_rank(ChunkPlace(f"{number:02}.py", 1, 2) for number in range(61))
    assert [shares[ChunkPlace(f"{number:02}.py", 1, 2)] for number in (0, 60)] == [1.0, 0.5]


def test_a_sentence_that_was_copied_is_found_where_it_stands_also_below_better_matches() -> None:
    files = {
        "src/cache.py": "def cache_object(pickle, cache):\n    cache.push(pickle.object, cache)\n    return pickle\n",
        "tests/test_storage.py": "def test_it():\n    # Push an object into the cache\n"
        "    # to make sure it pickles properly\n    store()\n",
    }
    sentence = "Push an object into the cache to make sure it pickles properly"
    hits = search(files).search(sentence, "c").hits
    assert hits[0].path == "tests/test_storage.py"
    assert hits[0].scores["exact"] == 1.0
    asked_for = search(files).search(f"{sentence}?", "c").hits  # a question is put in one's own words
    assert not any("exact" in hit.scores for hit in asked_for)


def test_a_number_of_one_digit_tells_one_file_from_another() -> None:
    files = {f"mod{number}.py": f'def run():\n    """Runs task number {number}."""\n' for number in range(12)}
    assert paths("Runs task number 7.", files=files)[0] == "mod7.py"


def test_the_best_line_comes_first_and_its_place_is_told():
    assert snippet(TEXT, ["walrus"]) == (6, "    walrus()")
    assert snippet(TEXT, [])[0] == 0


@given(st.lists(st.sampled_from(["", " ", "a", "b walrus", "walrus a"]), max_size=20), st.sampled_from(["a", "walrus"]))
def test_the_first_line_shown_is_the_line_at_its_place(lines, word):
    before, shown = snippet("\n".join(lines), [word])
    if shown:
        assert shown.split("\n")[0] == lines[before]
