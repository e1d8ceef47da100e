"""Real torch programs, one failure each, and healthy ones."""
