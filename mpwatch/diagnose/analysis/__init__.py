"""What several rules derive from a snapshot: waits, stacks, exits, forecasts."""
