"""The JSON documents of `--json`, one class for each form."""
