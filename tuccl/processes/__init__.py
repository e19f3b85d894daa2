"""The processes of a command: stopped by a signal, at work side by side, or ranks of MPI."""
