"""Benchmarks: `python -m bench.compare` compares with peers, `pytest bench` times each kernel."""
