"""Memory that grows."""
