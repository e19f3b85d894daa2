"""The implementation of every command, without its options."""
