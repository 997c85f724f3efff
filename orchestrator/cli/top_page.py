"""The picture of `lore top` as lines of text, for any number of columns. Pure; knows no terminal and no colour.

A line is spans of text, each with the name of a style. All that a colour tells a letter or a word tells, too:

    oooWWWWbbFFFFFFtt-----.............      others, weights, buffers, floors, tails, room, free
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from unicodedata import combining, east_asian_width

from orchestrator.cli.terminal import HARMLESS, count, duration, listed, plural, seconds, size, work
from orchestrator.wire.picture import (
    PARTS,
    BlockHits,
    BranchLine,
    CacheLine,
    CodexLine,
    FileCost,
    LoadLine,
    Picture,
    QuestionLine,
    TicketLine,
    widths,
)

Span = tuple[str, str]  # text, and the name of its style; "" is plain
Line = tuple[Span, ...]
LETTERS = dict(zip(PARTS, "oWbFt-.", strict=True))
CACHED, COMPUTED = "=", "+"
BLANK: Line = ()
WORDS = re.compile(r"\s*\S+\s*|\s+")
NARROW, WIDE = 40, 56  # columns below which a line keeps only what must be there; from which a bar has a place in it


def page(now: Picture, columns: int) -> list[Line]:
    """All of it, as `--once` prints it."""
    lines = [*header(now, columns), BLANK, *memory(now, columns)]
    for name, make in SECTIONS.items():
        lines += [BLANK, ((title(name, now), "bold"),), *make(now, columns)]
    return [fit(line, columns) for line in lines]


def title(name: str, now: Picture) -> str:
    """Of a section."""
    if name == "files" and now.files:
        return f"files of {now.files.codex}"
    if name == "jobs" and now.tickets:
        waiting = sum(job.phase == "waiting" for job in now.tickets)
        return f"jobs: {listed(run_words(len(now.tickets) - waiting), f'{waiting} waiting' if waiting else '')}"
    return name


def run_words(number: int) -> str:
    return f"{number} running" if number else ""


# ---- sections --------------------------------------------------------------------------------------------------------


def header(now: Picture, columns: int) -> list[Line]:
    """Who answers, the levels, and what must be known."""
    levels = now.levels
    stalled = levels.engine not in ("ready", "starting")
    state = f"engine {levels.engine}"
    first: list[Span] = [
        (f"lorekeep {now.version}", "bold"),
        (f"  {now.model}  ", ""),
        (state, "bad" if stalled else ""),
    ]
    pressure = "" if levels.pressure is None else f" {100 * levels.pressure:.0f} %"
    words: list[Span] = [
        (f"memory {levels.memory}{pressure}", level_style(levels.memory)),
        (f"power {levels.power}", "" if levels.power == "normal" else "bad"),
    ]
    words += [(f"window {count(levels.window)}", "")] if levels.window else []
    words += [(plural(now.sessions, "session"), "")]
    words += [(f"{100 * now.hit_rate:.1f} % cached, {duration(now.saved_ms / 1000)} saved", "")] if now.hit_rate else []
    why = [f"away: {levels.away}" if levels.away else "", levels.reason, levels.saving, *now.notes]
    told = [line for text in dict.fromkeys(why) if text for line in folded(((text, "bad"),), columns)]
    return [tuple(first), *wrapped(words, columns), *told]


def head(now: Picture, fault: str, columns: int, rows: int) -> list[Line]:
    """What stands above the panes: all of it, or in few rows what matters most."""
    away = folded(((f"away: {fault}", "bad"),), columns) if fault else []
    who, *levels = header(now, columns)
    bar, *legend = memory(now, columns)
    whole = [*away, who, *levels, bar, *legend]
    return whole if len(whole) <= rows else [*away, who, bar, *levels, *legend][: max(1, rows)]


def level_style(level: str) -> str:
    return "" if level == "calm" else "bad"


def memory(now: Picture, columns: int) -> list[Line]:
    """The bar, and what its letters mean with the bytes of each."""
    bar = now.memory
    if not bar.whole:
        return [(("memory: nothing is known of it yet", "dim"),)]
    shares = zip(PARTS, visible([bar.parts[name] for name in PARTS], columns), strict=True)
    drawn = tuple((LETTERS[name] * share, name) for name, share in shares if share)
    legend = [(f"{LETTERS[name]} {name} {size(bar.parts[name])}", name) for name in PARTS]
    whole = f"{size(bar.whole)} {bar.where or 'RAM'}"
    return [drawn, *wrapped([(whole, "bold"), *legend], columns)]


def caches(now: Picture, columns: int) -> list[Line]:
    """Codices, then each live cache as a tree."""
    lines = [line for one in now.codices for line in folded(codex_line(one, now), columns)]
    for tree in now.trees:
        lines += tree_lines(tree, columns)
    return lines or [(("no codex is loaded: lore load", "dim"),)]


def codex_line(codex: CodexLine, now: Picture) -> Line:
    """What its job and its cache tell is not told here: how far its prefix is, and its tokens."""
    done = ""
    if codex.total and codex.done is not None:
        at_work = any(job.codex == codex.name and job.phase == "prefill" for job in now.tickets)
        done = "computing" if at_work else work("computing", codex.done, codex.total, None, codex.left_s)
    is_open = any(tree.codex == codex.name and tree.branches for tree in now.trees)
    floor = codex.tier or "not built yet"
    if codex.tier and not is_open:
        floor = listed(codex.tier, f"{count(codex.tokens)} tokens", size(codex.kv_bytes))
    told = listed(floor, plural(codex.files, "file") if codex.tier else "", codex.fresh)
    doing = listed(done, loading(codex.load) if codex.load else "")  # first: what changes is cut last
    return (codex.name, "bold"), ("  ", ""), (f"{doing}, " if doing else "", "computed"), (told, "")


def loading(load: LoadLine) -> str:
    """`indexing files, 374 of 1,023, 4 s left`. Before a total is known: how many were found."""
    far = f"{count(load.done)} of {count(load.total)}" if load.total else count(load.done) if load.done else ""
    return listed(load.phase, far, f"{duration(load.left_s)} left" if load.left_s else "")


def tree_lines(tree: CacheLine, columns: int) -> Iterator[Line]:
    room = f", {count(tree.room)} empty" if columns >= NARROW else ""
    told = f"  {size(tree.bytes)}, {count(tree.cells)} cells{room}"
    yield (f"{tree.identity}/{tree.codex or 'none'}", "bold"), (told, "dim")
    for arms, branch in zip(drawn_arms([one.depth for one in tree.branches]), tree.branches, strict=True):
        yield branch_line(arms, branch, columns)
    if tree.left_out:
        yield ((f"and {plural(tree.left_out, 'branch', 'branches')} more", "dim"),)


def branch_line(arms: str, branch: BranchLine, columns: int) -> Line:
    wide = columns >= NARROW
    name = branch.kind if wide else LETTERS[f"{branch.kind}s"]
    tokens = plural(branch.tokens, "token") if wide else count(branch.tokens)
    told = listed(f"  {tokens}", size(branch.bytes), f"{count(branch.promised)} to compute" if branch.promised else "")
    return (arms, "dim"), (name, f"{branch.kind}s"), (told, ""), ("  in use" if branch.used else "", "good")


def drawn_arms(depths: Sequence[int]) -> list[str]:
    """What stands before each row of a tree in depth-first order: `│  ├─ `."""
    drawn, below = [], set[int]()  # depths at which a later row has a sibling
    for depth in reversed(depths):
        arms = "".join("│  " if at in below else "   " for at in range(depth))
        drawn.append(arms + ("├─ " if depth in below else "└─ "))
        below = {at for at in below if at < depth} | {depth}
    return drawn[::-1]


def jobs(now: Picture, columns: int) -> list[Line]:
    """What runs, then what waits, in its order."""
    lines = [line for one in now.tickets for line in folded(job_line(one, columns), columns)]
    return lines or [(("nothing runs and nothing waits", "dim"),)]


def job_line(job: TicketLine, columns: int) -> Line:
    name = (job.codex or "none", "bold")
    if columns < NARROW:
        return name, ("  ", ""), job_in_short(job)
    if job.phase == "waiting":
        told, style = f"waits, {ordinal(job.place)} in line, for {duration(job.waited_s)}", "dim"
    elif job.phase == "answering":
        rate = f"{count(job.rate)} tokens/s" if job.rate else ""
        told, style = listed("answers", rate, f"{count(job.generated)} of {count(job.most)} tokens"), "good"
    else:
        what = "restores" if job.phase == "restoring" else "computes ahead" if job.ahead else "computes"
        told, style = work(what, job.done, job.prompt, job.rate, job.left_s), "computed"
    line = (f"{job.number:>4} ", "dim"), name, (f"  {told}", style)
    more = f"  of {count(job.prompt)} tokens" if job.phase != "answering" else ""
    is_room = sum(cells(text) for text, _ in line) + cells(more) <= columns
    return (*line, (more, "dim")) if is_room else line


def job_in_short(job: TicketLine) -> Span:
    if job.phase == "waiting":
        return f"waits {job.place}", "dim"
    if job.phase == "answering":
        return f"{count(job.rate or 0)} tokens/s", "good"
    return listed(f"{100 * job.done // max(1, job.prompt)} %", duration(job.left_s) if job.left_s else ""), "computed"


def ordinal(place: int) -> str:
    return "next" if place == 1 else f"number {place}"


def questions(now: Picture, columns: int) -> list[Line]:
    """The newest first, each with its bar: what of its prompt was cached, and what was computed."""
    found: list[Line] = []
    for one in now.questions:
        found += question_lines(one, columns)
    return found or [(("nothing was asked yet, or traces are off", "dim"),)]


def question_lines(one: QuestionLine, columns: int) -> Iterator[Line]:
    told = f"  {count(one.tokens)} tokens, {seconds(one.ttft_ms)} to the first"  # what was computed: in each block
    beside = columns >= WIDE
    cached, computed = visible(
        [one.cached, one.computed], max(1, min(40, columns - 2 - len(told)) if beside else columns - 2)
    )
    yield (clean(one.title), "bold"), (f"  {one.codex}" if one.codex else "", "dim")
    bar = (CACHED * cached, "cached"), (COMPUTED * computed, "computed")
    yield ("  ", ""), *bar, (told if beside else "", "")
    told_blocks = one.blocks if columns >= NARROW else tuple(each for each in one.blocks if each.cached < each.tokens)
    yield from folded(
        (("  ", ""), *blocks(told_blocks), (f"left at {one.broke_at}" if one.broke_at else "", "dim")), columns
    )


def blocks(found: Iterable[BlockHits]) -> Iterator[Span]:
    """`codex 6,622  query 6+5`: cached tokens, then the computed ones; what is empty is left out."""
    for one in found:
        if one.tokens:
            cached, computed = one.cached, one.tokens - one.cached
            yield f"{one.kind} {count(cached) if cached else ''}", "cached"
            yield f"{COMPUTED}{count(computed)}" if computed else "", "computed"
            yield "  ", ""


def files(now: Picture, columns: int) -> list[Line]:
    """What each file takes, the dearest first."""
    costs = now.files
    if costs is None:
        return [(("no codex with a prefix is chosen", "dim"),)]
    level = max((len(one.level) for one in costs.lines), default=0)
    rows = [file_line(one, costs.tokens, columns, level) for one in costs.lines]
    total = (
        f"{count(costs.tokens)} tokens, {size(costs.bytes)} of KV, {plural(len(costs.lines) + costs.left_out, 'row')}"
    )
    more = [((f"and {plural(costs.left_out, 'row')} more that cost less", "dim"),)] if costs.left_out else []
    return [((total, "dim"),), *rows, *more]


def file_line(one: FileCost, whole: int, columns: int, level: int) -> Line:
    """`level`: columns of the widest level."""
    share = f"{100 * one.tokens / whole:5.1f} %" if whole else ""
    details = f"{share}  {size(one.bytes):>9}  {one.level:<{level}}  " if columns >= WIDE else ""
    room = columns - 9 - len(details)
    return (f"{count(one.tokens):>7}  ", ""), (details, "dim"), (ending(clean(one.path), max(1, room)), "floors")


SECTIONS: Mapping[str, Callable[[Picture, int], list[Line]]] = {
    "caches": caches,
    "jobs": jobs,
    "questions": questions,
    "files": files,
}


# ---- columns ---------------------------------------------------------------------------------------------------------


def visible(parts: Sequence[int], columns: int) -> list[int]:
    """As `widths`, but a part that is not 0 has a column, as far as there are so many."""
    some = [at for at, part in enumerate(parts) if part]
    if len(some) > columns:
        return widths(parts, columns)
    rest = widths(parts, columns - len(some))
    return [share + (at in some) for at, share in enumerate(rest)]


def clean(text: str) -> str:
    """On one line, without what would drive a terminal."""
    return " ".join(text.split()).translate(HARMLESS)


def cells(text: str) -> int:
    """Columns that a terminal gives to it."""
    return len(text) if text.isascii() else sum(map(cell, text))


def cell(char: str) -> int:
    if combining(char) or char in "\u200b\u200c\u200d\ufe0e\ufe0f":
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def fit(line: Line, columns: int) -> Line:
    """At most so many columns; what was cut ends in an ellipsis. Text is clean afterwards."""
    spans = [(text.translate(HARMLESS).replace("\n", " ").replace("\t", " "), style) for text, style in line]
    if sum(cells(text) for text, _ in spans) <= columns:
        return tuple(spans)
    kept, left = list[Span](), columns - 1
    for text, style in spans:
        part = beginning(text, left)
        kept.append((part, style))
        left -= cells(part)
        if part != text:
            break
    return (*kept, ("…" if columns > 0 else "", "dim"))


def beginning(text: str, columns: int) -> str:
    """As much of it as fits."""
    used = 0
    for at, char in enumerate(text):
        used += cell(char)
        if used > columns:
            return text[:at]
    return text


def ending(text: str, columns: int) -> str:
    """As much of a path's end as fits: it names the file."""
    if cells(text) <= columns:
        return text
    back = beginning(text[::-1], columns - 1)
    return f"…{back[::-1]}"


def folded(line: Line, columns: int) -> list[Line]:
    """On as many lines as its words need, those behind the first two columns further right."""
    if sum(cells(text) for text, _ in line) <= columns:
        return [line]
    rows: list[list[Span]] = [[]]
    used = 0
    for text, style in line:
        for word in WORDS.findall(text.translate(HARMLESS)):
            wide = cells(word.rstrip())
            if used > 2 and used + wide > columns and wide <= columns - 2:  # a longer word is cut wherever it stands
                rows.append([("  ", "")])
                used = 2
            rows[-1].append((word, style))
            used += cells(word)
    return [tuple(row) for row in rows]


def wrapped(words: Sequence[Span], columns: int) -> list[Line]:
    """Words with two blanks between them, on as many lines as they need."""
    lines: list[list[Span]] = []
    used = 0
    for text, style in words:
        if lines and used + 2 + cells(text) <= columns:
            lines[-1] += [("  ", ""), (text, style)]
            used += 2 + cells(text)
        else:
            lines.append([(text, style)])
            used = cells(text)
    return [tuple(line) for line in lines]


def plain(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()
