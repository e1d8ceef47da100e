"""The folder that `mpwatch run` puts into PYTHONPATH. Only `sitecustomize.py` belongs here."""
