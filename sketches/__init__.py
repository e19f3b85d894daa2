"""What the synthesizer may use of a machine, and why the rest was dropped."""
