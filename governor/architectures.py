"""What llama.cpp knows of an architecture beyond its GGUF header: which layers slide, recur, or hold no KV.

Tables, from `load_arch_hparams` of each architecture and `create_memory` in llama-model.cpp of llama.cpp 0c1e5709. An
architecture in none of them is not guessed. Knows no file and no number of bytes.
"""

from dataclasses import dataclass


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True)
class Sliding:
    """Where sliding-window layers are: of each `period` layers one is dense, the last, or the first with `dense_first`.

    A pattern in the file comes before `period`; None: the file must bring one. `default` is the window where the file
    names none, `fixed` one that the file cannot change. `optional`: no window in the file, or 0, means no sliding.
    `only_layers`: only the size with so many layers slides.
    """

    period: int | None
    dense_first: bool = False
    default: int | None = None
    fixed: int | None = None
    optional: bool = False
    only_layers: int | None = None


SLIDING = {
    "afmoe": Sliding(4, optional=True),
    "cohere2": Sliding(4),
    "cohere2moe": Sliding(4, dense_first=True),
    "exaone-moe": Sliding(4),
    "exaone4": Sliding(4, default=4096, only_layers=64),
    "gemma2": Sliding(2, default=4096),
    "gemma3": Sliding(6, optional=True),
    "gemma3n": Sliding(5),
    "gemma4": Sliding(None),
    "gpt-oss": Sliding(2),
    "granite_swa": Sliding(None),
    "laguna": Sliding(4, dense_first=True, optional=True),
    "llama4": Sliding(4, default=8192, fixed=8192),
    "maple": Sliding(None),
    "mellum": Sliding(4, optional=True),
    "mimo2": Sliding(None),
    "muse-glimmer": Sliding(4),
    "olmo2": Sliding(4, optional=True),
    "plamo3": Sliding(8, optional=True),
    "smallthinker": Sliding(4, dense_first=True, fixed=4096, optional=True),
    "spark2_5": Sliding(None),
    "step35": Sliding(None),
}

CHUNKED = frozenset({"llama4"})  # their windows do not slide: each begins where the last one ended

RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})

# Layers without KV heads recur, the others attend.
HYBRID_BY_HEADS = _names("bailingmoe3 granitehybrid jamba kimi-linear lfm2 lfm2moe nemotron_h nemotron_h_moe plamo2")
# Every n-th layer attends, where the file names no recurrent layers; the number is n where the file has none.
HYBRID_BY_INTERVAL = {"minimax-01": 8, "qwen3next": 4, "qwen35": 4, "qwen35moe": 4}
HYBRID_ALL = frozenset({"falcon-h1"})  # every layer does both
UNGROUPED = frozenset({"mamba", "jamba"})  # their first generation of state space has no groups, whatever the file says

# Layers from here on use the KV of an earlier one: a fixed count, or what the file says is shared.
KV_FROM_START = {"gemma3n": 20}
KV_SHARED = frozenset({"gemma4"})

# No KV cache at all in llama.cpp: encoders, and models that denoise a whole text.
NO_CACHE = _names(
    """bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert gemma-embedding
    wavtokenizer-dec dream llada llada-moe rnd1"""
)

# Their caches hold more than keys and values, or belong to another model: read the real size after loading.
NOT_PREDICTED = {
    name: why
    for why, names in {
        "its sparse attention keeps an index beside the KV": "deepseek32 deepseek4 glm-dsa glm5-next hy_v4 dots3note "
        "minimax-m3 qwen4exp kimi-k3",
        "it is a draft head that lives on another model's cache": "eagle3 dflash gemma4-assistant",
        "it is no decoder of text alone": "clip t5 t5encoder qwen3tts pockettts",
    }.items()
    for name in names.split()
}

# One KV of the same width in every layer that has KV heads.
DENSE = _names(
    """llama deci falcon grok gpt2 gptj gptneox mpt baichuan starcoder refact bloom stablelm qwen qwen2 qwen2moe
    qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe phi2 phi3 phimoe plamo codeshell orion internlm2 minicpm minicpm3
    gemma starcoder2 xverse command-r dbrx olmo olmoe openelm arctic deepseek deepseek2 deepseek2-ocr chatglm
    glm4 glm4moe bitnet jais jais2 nemotron exaone granite granitemoe graniteswitch chameleon plm bailingmoe
    bailingmoe2 dots1 arcee ernie4_5 ernie4_5-moe hunyuan-moe hunyuan-dense hunyuan_vl hy_v3 smollm3 seed_oss
    grovemoe apertus hrm_text minimax-m2 cogvlm pangu-embedded mistral3 mistral4 paddleocr llama-embed maincoder
    talkie nanbeige"""
)


def windows_have_ranges(architecture: str, *, flash_attention: bool) -> bool:
    """Whether the memory of a model with sliding windows can be cut in ranges: nothing behind a window is lost where the
    windows slide over a cache of cells, and a step is one batch to llama.cpp, which it is with flash attention alone."""
    return flash_attention and windows_have_own_cells(architecture)


def windows_have_own_cells(architecture: str) -> bool:
    """Whether llama.cpp can keep of sliding layers the windows alone, and they slide."""
    return architecture in SLIDING.keys() - CHUNKED


def unpredictable(architecture: str) -> str | None:
    """Why the KV of an architecture cannot be predicted; None when it can."""
    if architecture in NOT_PREDICTED:
        return NOT_PREDICTED[architecture]
    if architecture in NO_CACHE:
        return "it has no KV cache: it is no model that continues a text"
    known = DENSE | SLIDING.keys() | RECURRENT | HYBRID_BY_HEADS | HYBRID_BY_INTERVAL.keys() | HYBRID_ALL
    if architecture not in known:
        return "it is newer than this version's tables"
    return None
