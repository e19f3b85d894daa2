"""Two looks at a machine held against each other: which device is which, and what changed."""
