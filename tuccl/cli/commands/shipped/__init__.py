"""Commands on shipped directories: ship and its versions, doctor, bench, watch."""
