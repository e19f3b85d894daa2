from tuccl.search.trials.events import Total


def silent(stage: str, done: int, total: Total, /, share: float | None = None) -> None:
    """A `Progress` that shows nothing."""
