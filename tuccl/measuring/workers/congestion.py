"""TCP's congestion control, which affects the times between faked nodes of a host.

Their traffic takes loopback. BBR paces each connection by its estimate of the bandwidth, which is
too low over loopback: messages of 1 MB take 1.7 times as long as with CUBIC, and
where one of two connections was idle before, up to 1.8 times as long as where both were used. So
starts of a job differ (docs/lab/faked-nodes.md has the figures).
"""

from __future__ import annotations

from pathlib import Path

_SETTING = "net.ipv4.tcp_congestion_control"
PACING = frozenset({"bbr", "bbr2", "bbr3"})


def congestion_control(proc: Path = Path("/proc")) -> str:
    """Return the algorithm for new connections on this host; empty if the kernel names none."""
    try:
        return (proc / "sys" / _SETTING.replace(".", "/")).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def loopback_notes(control: str) -> list[str]:
    """Return notes for users who fake nodes on a host with this congestion control."""
    if control not in PACING:
        return []
    note = (
        f"{_SETTING} is {control} here: from 512K on faked nodes take longer, and differ from "
        f"start to start; `sysctl -w {_SETTING}=cubic` before the run spares them that"
    )
    return [note]
