"""What does routing cost and gain inside Spark? `python -m bench.spark`, page: RESULTS.md."""
