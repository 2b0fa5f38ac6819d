"""PySpark adapters of pyroute; they arrive with the Spark part."""
