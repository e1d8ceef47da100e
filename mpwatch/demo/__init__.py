"""Real torch programs that show one failure each, and a healthy one."""
