"""`tuccl report --follow`: the page of a run that goes on, served on this host."""
