"""One module per question of `python -m bench.compare`; each has a `run(scale) -> Section`."""
