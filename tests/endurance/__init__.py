"""Programs that run for minutes or hours on demand, each printing what it found."""
