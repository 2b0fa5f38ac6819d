"""`pyroute run`: the whole loop on Spark, on a generated stream or on your own files."""
