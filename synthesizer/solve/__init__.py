"""Trees and paths for every chunk over a sketch's resources: integer programs and heuristics."""
