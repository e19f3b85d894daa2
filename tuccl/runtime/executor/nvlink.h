// Neighbours of a device over NVLink, by NVML. Ranks exchange them, so that all know which devices
// NVLink joins.
#ifndef TUCCL_EXECUTOR_NVLINK_H
#define TUCCL_EXECUTOR_NVLINK_H

#include <cstdint>

namespace tuccl {

// Most devices that NVLink joins directly; larger fabrics have switches.
constexpr uint32_t kMostNeighbours = 7;

struct NvlinkEnds {
    uint32_t own; // PCI domain and bus of the device; so are its neighbours.
    uint32_t has_switch;
    uint32_t neighbours[kMostNeighbours]; // Those behind the last are 0.
};

// Returns only the own address where NVML is unavailable: LL128 is not used then, which is slower
// but correct.
NvlinkEnds nvlink_ends(const char *bus_id);

// Having some NVLink is not enough: bridges join pairs of cards, and traffic between pairs takes
// PCIe, which does not keep an LL128 line in one piece.
inline bool nvlink_joins(const NvlinkEnds &first, const NvlinkEnds &second) {
    if ((first.own != 0 && first.own == second.own) ||
        (first.has_switch != 0 && second.has_switch != 0))
        return true;
    for (const uint32_t neighbour : first.neighbours)
        if (neighbour != 0 && neighbour == second.own)
            return true;
    return false;
}

} // namespace tuccl

#endif
