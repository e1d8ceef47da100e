"""Where inputs come from: a live job, one look, a recording."""
