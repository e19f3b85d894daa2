#include "moves_launch.h"

#include <algorithm>

namespace tuccl {

namespace {

// A buffer's chunk in full: tiles and instances are parts of it.
Operand chunk_operand(const MovePlace &place, const ProgramLaunch &plan) {
    uint64_t address = 0;
    uint64_t bytes = 0;
    if (place.buffer == TUCCL_BUFFER_SCRATCH) {
        address = reinterpret_cast<uint64_t>(plan.own_area) + plan.scratch_first +
                  uint64_t{place.chunk} * plan.tile_bytes * plan.instances;
        bytes = uint64_t{plan.tile_bytes} * plan.instances;
    } else {
        const auto *user = place.buffer == TUCCL_BUFFER_INPUT ? plan.send : plan.receive;
        const uint64_t part = place.chunk / plan.part_chunks;
        const uint64_t offset = place.chunk % plan.part_chunks * plan.chunk_bytes;
        bytes = plan.part_bytes - std::min(offset, plan.part_bytes);
        address = reinterpret_cast<uint64_t>(user) + part * plan.part_bytes + offset;
    }
    const uint64_t flags = place.buffer == TUCCL_BUFFER_SCRATCH ? kOperandIsScratch : 0;
    return {reinterpret_cast<char *>(address), bytes | flags << 48 | uint64_t{place.from} << 56};
}

Operand message_operand(const MovePlace &place, const ProgramLaunch &plan) {
    char *address =
        plan.area[place.rank] + plan.lines_first + uint64_t{place.connection} * plan.lane_bytes;
    // In one tile a message has one slot.
    if (plan.tiles == 1)
        address += (place.ordinal - 1U) * uint64_t{plan.slot_bytes};
    const uint64_t flags = kOperandIsMessage | (place.ends ? kOperandEnds : 0);
    return {address, place.ordinal | uint64_t{place.per_tile} << 8 | uint64_t{place.rank} << 16 |
                         uint64_t{place.connection} << 24 | uint64_t{place.chunk} << 32 |
                         flags << 48 | uint64_t{place.from} << 56};
}

} // namespace

void write_records(const RankMoves &rank, const ProgramLaunch &plan, const MoveRecords &records) {
    uint32_t written = 0;
    for (size_t i = 0; i < rank.moves.size(); i++) {
        const Move &move = rank.moves[i];
        uint64_t flags = (move.adds ? kMoveAdds : 0) | (move.completes ? kMoveCompletes : 0);
        uint64_t messages = 0;
        const uint64_t first = written;
        for (const auto *places : {&move.inputs, &move.outputs})
            for (const MovePlace &place : *places) {
                if (place.is_message && places == &move.inputs)
                    messages |= uint64_t{1} << (written - first);
                if (place.ends)
                    flags |= kMoveEnds;
                records.operands[written++] =
                    place.is_message ? message_operand(place, plan) : chunk_operand(place, plan);
            }
        records.moves[i] = {move.inputs.size() | move.outputs.size() << 8 | flags << 16 |
                            messages << 24 | first << 32};
    }
    Link *const incoming = std::copy(rank.outgoing.begin(), rank.outgoing.end(), records.links);
    std::copy(rank.incoming.begin(), rank.incoming.end(), incoming);
}

} // namespace tuccl
