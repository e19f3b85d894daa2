"""Options, machines, sketches and files as the command line names them."""
