"""A snapshot as JSON, text, HTML, metrics or trace."""
