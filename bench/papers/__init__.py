"""The experiments of the papers, run on pyroute: one command per paper."""
