"""Keyed state of a stream that moves between tasks, and the log that commits it exactly once.

Nothing here knows Spark: `schema` says what a row of state is, `levels` are immutable sorted rows
of it, `files` their format, `tiers` says when they are merged, `cache` keeps them between batches.
`state` is what a task reads and writes in one batch, `store` the directory of all files, and
`manifest` the chain of documents that says which of them are the state.
"""
