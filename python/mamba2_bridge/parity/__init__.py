"""Proof that the native models and the PyTorch twin are one function with one set of gradients.

`cases` says what is compared, `runners` how each side computes it, `compare` what equal means, `tolerances`
how equal, `training` does the same along optimizer steps, `report` writes it down.
"""
