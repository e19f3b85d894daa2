"""Playback of NVML's answers that were recorded on a machine: `RecordedNvml`."""

import json
from typing import Any

from probes.nvidia.nvml_calls import NvmlCallError, NvmlCalls, NvmlFault, RemoteType

HIDDEN_SWITCH = {"p2p": True, "up": True, "type": "switch", "address": "FFFFFFFF:FF:FF.0"}

# As NVML 13.580 answered on a virtual machine with 4 H200, whose switches the machine hides.
H200_X4 = json.dumps(
    {
        "driver": "580.159.04",
        "gpus": [
            {
                "address": f"00000000:00:{6 + i:02X}.0",
                "name": "NVIDIA H200",
                "uuid": f"GPU-{i}48a1e04-a2e1-461f-6afe-8ea97925d74a",
                "compute_capability": 90,
                "memory_bytes": 150754820096,
                "mig": [False, False],
                "pcie": [5, 16],
                "links": [HIDDEN_SWITCH] * 18,
                "c2c": [],
            }
            for i in range(4)
        ],
    }
)


def session(text: str = H200_X4) -> dict[str, Any]:
    """Return a recording that a test may change, for `RecordedNvml`."""
    recording: dict[str, Any] = json.loads(text)
    return recording


class RecordedNvml(NvmlCalls):
    """A recorded session; an answer `{"fault": ...}` is an error of NVML.

    A GPU that is only a fault refuses everything, and links beyond those recorded do not exist.
    """

    def __init__(self, recording: dict[str, Any]) -> None:
        super().__init__()
        self.recording = recording
        self.running = False

    def start(self) -> None:
        self._answer(self.recording.get("init"))
        self.running = True

    def stop(self) -> None:
        self.running = False

    def driver_version(self) -> str:
        driver: str = self._answer(self.recording["driver"])
        return driver

    def gpu_count(self) -> int:
        return len(self._answer(self.recording["gpus"]))

    def pci_address(self, gpu: int) -> str:
        address: str = self._of(gpu, "address")
        return address

    def name(self, gpu: int) -> str:
        name: str = self._of(gpu, "name")
        return name

    def uuid(self, gpu: int) -> str:
        uuid: str = self._of(gpu, "uuid")
        return uuid

    def compute_capability(self, gpu: int) -> int:
        capability: int = self._of(gpu, "compute_capability")
        return capability

    def memory_bytes(self, gpu: int) -> int:
        memory: int = self._of(gpu, "memory_bytes")
        return memory

    def mig_mode(self, gpu: int) -> tuple[bool, bool]:
        now, later = self._of(gpu, "mig")
        return now, later

    def pcie_maximum(self, gpu: int) -> tuple[int, int]:
        generation, width = self._of(gpu, "pcie")
        return generation, width

    def may_access(self, gpu: int, peer: int) -> bool:
        apart: list[int] | None = self._answer(self.recording.get("apart"))
        return apart != [gpu, peer]

    def link_carries_p2p(self, gpu: int, link: int) -> bool:
        carries: bool = self._of_link(gpu, link, "p2p")
        return carries

    def link_is_up(self, gpu: int, link: int) -> bool:
        is_up: bool = self._of_link(gpu, link, "up")
        return is_up

    def link_remote_type(self, gpu: int, link: int) -> RemoteType:
        return RemoteType(self._of_link(gpu, link, "type"))

    def link_remote_address(self, gpu: int, link: int) -> str:
        address: str = self._of_link(gpu, link, "address")
        return address

    def c2c_links(self, gpu: int) -> tuple[tuple[bool, int], ...]:
        return tuple((up, mb_per_s) for up, mb_per_s in self._of(gpu, "c2c"))

    def domain(self, gpu: int) -> str:
        name: str = self._answer(self.recording["gpus"][gpu].get("domain", ""))
        return name

    def _of(self, gpu: int, fact: str) -> Any:
        assert self.running
        return self._answer(self._answer(self.recording["gpus"][gpu])[fact])

    def _of_link(self, gpu: int, link: int, fact: str) -> Any:
        links = self._of(gpu, "links")
        if link >= len(links):
            raise NvmlCallError(NvmlFault.ABSENT, "Invalid Argument")
        return self._answer(links[link][fact])

    @staticmethod
    def _answer(answer: Any) -> Any:
        if isinstance(answer, dict) and "fault" in answer:
            fault = NvmlFault(answer["fault"])
            raise NvmlCallError(fault, answer.get("words", str(fault)))
        return answer
