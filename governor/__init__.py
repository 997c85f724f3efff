"""What the machine can hold and run: bytes, tokens, weights, levels. Knows nothing of prompts.

sensors -> readings -> outlook (pressure, budget) by the sampler; gguf -> shape -> footprint; claims -> ctc.
"""
