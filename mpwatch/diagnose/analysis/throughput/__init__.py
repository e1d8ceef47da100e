"""Where the time of a job goes: the account of it, shares in it, and who loads its data."""
