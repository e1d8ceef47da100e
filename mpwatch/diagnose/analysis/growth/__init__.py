"""What rises steadily, how it goes on, and what keeps it."""
