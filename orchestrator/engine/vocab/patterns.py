"""How llama.cpp cuts text into pieces before merging, as one pattern for tiktoken, for the pre-tokenizers where that is
possible. A pattern is only a claim: `fast` proves it on the vocabulary at hand, or does without.

Source: `llm_tokenizer_bpe` in llama.cpp's src/llama-vocab.cpp. Where that applies two patterns one after the other, the
second sees the ends of what the first left: white space before a digit is therefore at an end.
"""

_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT2_DIGITS = r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?=\p{N})|\s+(?!\S)|\s+"

_LLAMA = rf"{_CONTRACTION}|{_WORDS}|\p{{N}}{{1,3}}|{_SIGNS}"
_QWEN = rf"{_CONTRACTION}|{_WORDS}|\p{{N}}|{_SIGNS}"
_QWEN_MARKS = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# "No small letter" and "no capital" mean the ASCII ones there: é may stand in both.
_CASED = r"[^\r\n\p{L}\p{N}]?(?:[\p{L}--[a-z]]*[\p{L}--[A-Z]]+%s|[\p{L}--[a-z]]+[\p{L}--[A-Z]]*%s)"
_CASED_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT4O = rf"{_CASED % (_CONTRACTION + '?', _CONTRACTION + '?')}|\p{{N}}{{1,3}}|{_CASED_SIGNS}"
_TEKKEN = rf"{_CASED % ('', '')}|\p{{N}}|{_CASED_SIGNS}"

_FAMILIES = {
    _LLAMA: "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 smaug-bpe dbrx glm4 glm5 chatglm-bpe",
    _GPT2_DIGITS: "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
    _GPT2: "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum modern-bert",
    _QWEN: "qwen2 deepseek-r1-qwen kormo stablelm2 hunyuan megrez solar-open grok-2",
    _QWEN_MARKS: "qwen35",
    _GPT4O: "gpt-4o llama4 kanana2 talkie minimax-m2",
    _TEKKEN: "tekken",
}
PATTERNS = {name: pattern for pattern, names in _FAMILIES.items() for name in names.split()}
