"""Mamba-2 on a CPU, timed against everything else that computes it, and against what the machine could do.

    python -m benchmarks run        # every work by every contender, into benchmarks/results/
    python -m benchmarks report     # docs/performance.md from those results
    python -m benchmarks.artifact_memory  # apart from all that: memory while a large model is recorded

Data goes one way:

========== ===============================================================================================
works      what is computed: sizes, lengths, forward or forward and backward
contenders who computes it, each in a process of its own
session    one contender doing one work: first call, memory, timed rounds
schedule   the rounds of all contenders in turn, without those that were disturbed
limit      the FLOPs of a work, and the machine's GEMM peak measured in the same run
stages     where our time goes, each stage against its own bound
results    all of that as JSON
report     tables and a plot, made from the JSON alone
========== ===============================================================================================
"""
