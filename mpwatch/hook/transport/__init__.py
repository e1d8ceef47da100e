"""What leaves the process: the ring, notes, their files, and the socket to observers."""
