"""Notes on TCP's congestion control for users who fake nodes."""

from __future__ import annotations

from pathlib import Path

from tuccl.measuring.workers.congestion import congestion_control, loopback_notes


def write_setting(proc: Path, text: str) -> Path:
    folder = proc / "sys" / "net" / "ipv4"
    folder.mkdir(parents=True)
    (folder / "tcp_congestion_control").write_text(text)
    return proc


def test_the_kernel_says_it_in_one_word(tmp_path: Path) -> None:
    assert congestion_control(write_setting(tmp_path, "cubic\n")) == "cubic"


def test_a_kernel_that_does_not_say_is_no_error(tmp_path: Path) -> None:
    assert congestion_control(tmp_path) == ""


def test_pacing_is_warned_of_with_the_remedy_and_nothing_else_is() -> None:
    assert loopback_notes("cubic") == loopback_notes("") == []
    (note,) = loopback_notes("bbr")
    assert "tcp_congestion_control is bbr here" in note
    assert "sysctl -w net.ipv4.tcp_congestion_control=cubic" in note
