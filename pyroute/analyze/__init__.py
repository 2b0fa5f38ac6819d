"""Reading files and saying which keys are hot: what the command `pyroute analyze` does.

Reading needs pyarrow, and nothing here is imported by `import pyroute`.
"""
