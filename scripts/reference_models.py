"""docs/models.md: the models that `lore up` recommends, and the windows that they have on cards, planned by the program."""

from collections.abc import Iterator

from published_models import CARDS, granted

from governor.footprint import KvPlan, bytes_per_token
from orchestrator.reports.recommended import MOST_ON_CPU, WORTHWHILE, Published, published, table

HEAD = """\
# Models

The built-in model only continues words of the codebase. For answers a real one is needed. `lore up` looks at the memory of
this machine, offers up to three of the models below, downloads the one that is chosen, and asks it. `lore up --dry-run`
only says which.

```
lore up ~/src/project                   # chooses, downloads, loads the folder, asks
lore up --model qwen3-4b                # this one, without being asked
lore model get hf:OWNER/REPO/FILE.gguf  # any other; then lore model use FILE
```

**Without a network** a file that was downloaded elsewhere is as good: `lore up` names the address and the place where it
belongs, and goes on from there when it is run again. `lore model use FILE.gguf` takes a file from anywhere.

**Interrupted**, `lore up` goes on where it was: a download at the byte where it broke off, a load at what was read.
"""
TABLE = """\
## What is in the table

Checked on {day}: names, sizes and sums against several public records of these files, shapes against the published
configurations. Newer models come out faster than a table is kept; one that llama.cpp runs needs no row here.

| name | model | parameters, billions (active) | size | licence | file |
|---|---|---|---|---|---|"""
WINDOWS = """\

## Windows on cards

How long a prompt and its answer may be together, in thousands of tokens, with f16 KV / q8_0 KV, beside a desktop of 0.4 GB
and with the default settings. Where not all layers fit, how many do (the output counts as one). Both are computed by the
code that plans the memory ([the governor](governor.md#the-whole-card)), from layers, KV heads and the size of a head.

| name | KV of a token, f16 | {cards} |
|---|---|{lines}"""
CHOICE = """\

## Which one comes first

1. On a GPU only models of which all layers fit on it: a layer beside it slows every token.
2. On a CPU alone only models that pass a token through at most {most:g} billion parameters, and take no more than half of
   what may be ours: more of them would read a codebase for hours.
3. Models with a window of {least:,} tokens or more come first, the largest of them at the top.

Size is no measure of quality: no benchmark of answers was run to order this table. [real-models.md](real-models.md) has
what was measured with real weights."""


def page() -> Iterator[str]:
    yield HEAD
    yield TABLE.format(day=table().checked.isoformat())
    yield from map(row, published())
    yield WINDOWS.format(cards=" | ".join(f"{card} GB" for card in CARDS), lines="---|" * len(CARDS))
    yield from map(windows, published())
    yield CHOICE.format(most=MOST_ON_CPU, least=WORTHWHILE)


def row(one: Published) -> str:
    active = f" ({one.active:g})" if one.active != one.parameters else ""
    file = f"[`{one.file}`]({one.page})"
    cells = (f"`{one.name}`", one.title, f"{one.parameters:g}{active}", f"{one.bytes / 1e9:.2f} GB", one.licence, file)
    return f"| {' | '.join(cells)} |"


def windows(one: Published) -> str:
    per_token = bytes_per_token(one.shape, KvPlan("f16", "f16"))
    return " | ".join([f"| `{one.name}`", f"{per_token / 1024:.0f} KiB", *(cell(one, card) for card in CARDS)]) + " |"


def cell(one: Published, card: int) -> str:
    plain, small = (granted(one.shape, card, kind) for kind in ("f16", "q8_0"))
    if small.gpu_layers < small.layers:
        return f"{plain.gpu_layers} of {plain.layers} layers"
    texts = [f"{budget.window / 1000:.0f}" if budget.gpu_layers == budget.layers else "-" for budget in (plain, small)]
    return texts[0] if texts[0] == texts[1] else " / ".join(texts)
