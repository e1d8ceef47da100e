"""Start methods and pickling."""
