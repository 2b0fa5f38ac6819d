"""How hard the randomised tests try: counts scale with PYROUTE_EFFORT (CI 1, nightly 10)."""

import os


def effort(n: int) -> int:
    """Return ``n`` times PYROUTE_EFFORT, at least 1."""
    return max(1, round(n * float(os.environ.get("PYROUTE_EFFORT", "1"))))
