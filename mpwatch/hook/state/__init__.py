"""What wrappers remember between two calls."""
