"""The output of the hook: ring, notes, their files, and the socket for observers."""
