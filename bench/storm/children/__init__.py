"""Children that are compared, each a program of its own."""
