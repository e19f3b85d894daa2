"""The search of a run: its spaces and settings, as chosen here or as a record tells them."""
