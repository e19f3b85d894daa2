"""Machines that somebody saved: files of every form, told apart by content, and shipped ones."""
