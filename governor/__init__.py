"""What the machine can bear: bytes, tokens, weights, levels. It has never heard of a prompt.

sensors -> readings -> outlook (pressure, budget) by the sampler; gguf -> shape -> footprint; claims -> ctc.
"""
