"""What a careful user of numba would write: the honest comparison for each kernel."""
