"""The observer side of the hook: discovery, connection, decoding, files."""
