"""Strategies of the search: MRACO, and those that it is compared with."""
