#include "moves_launch.h"

#include <algorithm>

namespace tuccl {

namespace {

// A buffer's chunk in full: tiles and instances are parts of it.
Operand chunk_operand(const MovePlace &place, const ProgramLaunch &plan) {
    uint64_t address = 0;
    uint64_t bytes = 0;
    if (place.buffer == TUCCL_BUFFER_SCRATCH) {
        address = reinterpret_cast<uint64_t>(plan.area[plan.rank]) + plan.scratch_first +
                  uint64_t{place.chunk} * plan.tile_bytes * plan.instances;
        bytes = plan.tile_bytes;
    } else {
        const auto *user = place.buffer == TUCCL_BUFFER_INPUT ? plan.send : plan.receive;
        const uint64_t part = place.chunk / plan.part_chunks;
        const uint64_t offset = place.chunk % plan.part_chunks * plan.chunk_bytes;
        bytes = plan.part_bytes - std::min(offset, plan.part_bytes);
        address = reinterpret_cast<uint64_t>(user) + part * plan.part_bytes + offset;
    }
    Operand operand = {};
    operand.address = reinterpret_cast<char *>(address);
    operand.low = static_cast<uint32_t>(bytes);
    operand.high = static_cast<uint16_t>(bytes >> 32);
    operand.flags = place.buffer == TUCCL_BUFFER_SCRATCH ? kOperandIsScratch : 0;
    operand.from = place.from;
    return operand;
}

Operand message_operand(const MovePlace &place, const ProgramLaunch &plan) {
    Operand operand = {};
    operand.address = plan.area[place.rank] + plan.lines_first +
                      uint64_t{place.connection} * kSlots * plan.slot_bytes;
    operand.low = place.ordinal | uint32_t{place.per_tile} << 8 | uint32_t{place.rank} << 16 |
                  uint32_t{place.connection} << 24;
    operand.high = static_cast<uint16_t>(place.chunk);
    operand.flags = static_cast<uint8_t>(kOperandIsMessage | (place.ends ? kOperandEnds : 0));
    operand.from = place.from;
    return operand;
}

} // namespace

MovesNeed need_of(const Moves &moves) {
    MovesNeed need = {};
    for (const RankMoves &rank : moves.ranks) {
        uint32_t operands = 0;
        for (const Move &move : rank.moves)
            operands += static_cast<uint32_t>(move.inputs.size() + move.outputs.size());
        need.operands = std::max(need.operands, operands);
        need.moves = std::max(need.moves, static_cast<uint32_t>(rank.moves.size()));
        need.links = std::max(need.links,
                              static_cast<uint32_t>(rank.outgoing.size() + rank.incoming.size()));
        for (const Link &link : rank.outgoing)
            need.messages = std::max<uint32_t>(need.messages, link.per_tile);
    }
    return need;
}

void write_records(const RankMoves &rank, const ProgramLaunch &plan, const MoveRecords &records) {
    uint32_t written = 0;
    for (size_t i = 0; i < rank.moves.size(); i++) {
        const Move &move = rank.moves[i];
        MoveRecord record = {};
        record.inputs = static_cast<uint8_t>(move.inputs.size());
        record.outputs = static_cast<uint8_t>(move.outputs.size());
        record.flags = static_cast<uint8_t>((move.adds ? kMoveAdds : 0) |
                                            (move.completes ? kMoveCompletes : 0));
        record.first = written;
        for (const auto *places : {&move.inputs, &move.outputs})
            for (const MovePlace &place : *places) {
                if (place.is_message && places == &move.inputs)
                    record.messages |= static_cast<uint8_t>(1U << (written - record.first));
                if (place.ends)
                    record.flags |= kMoveEnds;
                records.operands[written++] =
                    place.is_message ? message_operand(place, plan) : chunk_operand(place, plan);
            }
        records.moves[i] = record;
    }
    Link *const incoming = std::copy(rank.outgoing.begin(), rank.outgoing.end(), records.links);
    std::copy(rank.incoming.begin(), rank.incoming.end(), incoming);
}

} // namespace tuccl
