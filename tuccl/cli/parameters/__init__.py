"""Options and help of commands, from the fields of their dataclasses."""
