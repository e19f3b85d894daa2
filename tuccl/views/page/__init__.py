"""The report of `tuccl report`: one HTML page on one table or two, and the figures behind it."""
