"""The machine as a graph of devices and links: JSON form, rules, fingerprint, paths, figures."""
