"""Other people's frameworks under mpwatch: run on demand, see `__main__.py`."""
