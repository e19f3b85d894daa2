"""The charts' script: plotly.min.js of the installed package `plotly` (MIT licence)."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tuccl.errors import ExitCode, TucclError


class PlotlyMissingError(TucclError):
    """The package `plotly` is not installed, or has no script for pages."""

    exit_code = ExitCode.ENVIRONMENT


def plotly_script() -> str:
    """Return the script's text, without importing the package.

    Raises:
        PlotlyMissingError: The package is missing or has another form.
    """
    package = find_spec("plotly")
    if package is None or package.origin is None:
        raise PlotlyMissingError(
            "plotly is not installed, which draws the report: `pip install plotly`"
        )
    path = Path(package.origin).parent / "package_data" / "plotly.min.js"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlotlyMissingError(
            f"cannot read {path}, which draws the report: install plotly again"
        ) from error
    if "</script" in text.lower():
        raise PlotlyMissingError(
            f"plotly {version('plotly')} has a script that no page can hold: install 6 or 7"
        )
    return text
