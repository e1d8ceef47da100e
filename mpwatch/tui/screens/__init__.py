"""One place of the dashboard each."""
