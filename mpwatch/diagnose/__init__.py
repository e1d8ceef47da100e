"""What is wrong, as pure functions over snapshot and history."""
