"""TCP's congestion control, which has a say in how fast the faked nodes of a host talk.

Their traffic is loopback's. BBR paces each connection by what it believes the bandwidth to be, and
over loopback it believes too little: messages of 1 MB take 1.7 times as long as with CUBIC, and
where one of two connections was idle before, up to 1.8 times as long as where both were used. So
one start of a job differs from the next (docs/lab/faked-nodes.md has the figures).
"""

from __future__ import annotations

from pathlib import Path

_SETTING = "net.ipv4.tcp_congestion_control"
PACING = frozenset({"bbr", "bbr2", "bbr3"})


def congestion_control(proc: Path = Path("/proc")) -> str:
    """Of new connections on this host; empty where the kernel does not say."""
    try:
        return (proc / "sys" / _SETTING.replace(".", "/")).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def loopback_notes(control: str) -> list[str]:
    """What whoever fakes nodes on a host with this congestion control should know."""
    if control not in PACING:
        return []
    note = (
        f"{_SETTING} is {control} here: from 512K on faked nodes take longer, and differ from "
        f"start to start; `sysctl -w {_SETTING}=cubic` before the run spares them that"
    )
    return [note]
