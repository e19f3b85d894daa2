#include "program_plan.h"

#include "byte_counts.h"

#include <algorithm>
#include <numeric>

namespace tuccl {

namespace {

// Granularity that suits every protocol: a pair of LL lines.
constexpr uint64_t kGrain = 16;
// Slots begin where LL128's pieces may.
constexpr uint64_t kSlotGrain = 512;
// LL's flags have 32 bits, and are renewed between launches.
constexpr uint64_t kMostNumbers = uint64_t{1} << 30;

uint64_t round_down(uint64_t value, uint64_t grain) {
    return value / grain * grain;
}

bool fits_lanes(const tuccl_program_header &header, const tuccl_call &call) {
    return fits(header, call) && header.most_threadblocks >= 1 &&
           call.nchannels * header.most_connections <= kMostProgramLanes;
}

// Bytes of one chunk in a message of the largest kind.
uint64_t most_tile_bytes(uint32_t protocol, uint64_t slot_bytes, uint32_t message_chunks) {
    const WireUnit &unit = kWireUnits[protocol];
    return slot_bytes / unit.line_bytes / std::max(1U, message_chunks) * unit.data_bytes;
}

// Division of connections and chunks, independent of a call's size.
struct Cut {
    uint64_t slot_bytes;
    uint64_t most_tile_bytes; // 0: not so.
};

Cut cut_of(const tuccl_program_header &header, const tuccl_call &call) {
    const uint64_t connections =
        std::max<uint64_t>(1, uint64_t{header.most_connections} * call.nchannels);
    const uint64_t connection_bytes =
        std::min<uint64_t>(call.buffer_bytes, kMostHalfBytes[call.protocol] / connections);
    Cut cut = {round_down(connection_bytes / kSlots, kSlotGrain), 0};
    cut.most_tile_bytes = most_tile_bytes(call.protocol, cut.slot_bytes, header.largest_message);
    if (header.most_scratch_chunks > 0)
        cut.most_tile_bytes = std::min(cut.most_tile_bytes,
                                       round_down(kMostProgramScratchBytes / kScratchWindows /
                                                      call.nchannels / header.most_scratch_chunks,
                                                  kGrain));
    return cut;
}

uint64_t lines_bytes(uint64_t connections, uint64_t instances, uint64_t slot_bytes) {
    return connections * instances * kSlots * slot_bytes;
}

uint64_t scratch_bytes(uint64_t chunks, uint64_t instances, uint64_t tile_bytes) {
    return kScratchWindows * chunks * instances * tile_bytes;
}

// Of a protocol in an area; of all together: the end of the last one's.
uint64_t lines_first(const tuccl_staging &staging, uint32_t protocol) {
    return std::accumulate(staging.half_bytes, staging.half_bytes + protocol, kProgramLlFirst,
                           [](uint64_t sum, uint64_t half) { return sum + 2 * half; });
}

// The messages of one loop may need fewer slots than a connection has, which can then be larger: a
// single loop that fits needs no credits.
void make_one_tile(const tuccl_program_header &header, uint32_t protocol, const MovesNeed &moves,
                   ProgramLaunch *launch) {
    if (launch->tiles <= 1 || moves.scratch_chunks > 0 || moves.messages == 0)
        return;
    const uint64_t slot = round_down(launch->lane_bytes / moves.messages, kSlotGrain);
    if (most_tile_bytes(protocol, slot, header.largest_message) < launch->instance_bytes)
        return;
    launch->slot_bytes = static_cast<uint32_t>(slot);
    launch->tiles = 1;
    launch->tile_bytes = static_cast<uint32_t>(launch->instance_bytes);
    launch->advance = header.longest_threadblock + uint64_t{1};
}

} // namespace

bool fits(const tuccl_program_header &header, const tuccl_call &call) {
    if (call.operation != header.operation || call.type >= TUCCL_TYPES ||
        (tuccl_has_root(call.operation) && call.root != header.root))
        return false;
    // Any call that NCCL takes in place may be, and ranks decide alike without looking.
    if ((header.flags & TUCCL_PROGRAM_RUNS_IN_PLACE) == 0 && tuccl_has_place(call.operation))
        return false;
    // NCCL divides before it adds: sums that overflow 16 bits here have an average there.
    if (tuccl_is_reduction(call.operation) &&
        (call.reduction >= TUCCL_REDUCTIONS ||
         (call.reduction == TUCCL_AVG &&
          (call.type == TUCCL_FLOAT16 || (header.flags & TUCCL_PROGRAM_AVERAGES) == 0))))
        return false;
    return call.protocol < TUCCL_PROTOCOLS && call.nthreads >= 32 &&
           call.nthreads <= kMostProgramThreads && call.nthreads % 32 == 0 && call.nchannels >= 1 &&
           call.nchannels <= kMostProgramBlocks;
}

bool plan_program(const tuccl_program &program, const tuccl_call &call, const MovesNeed &moves,
                  ProgramLaunch *launch) {
    const tuccl_program_header &header = *program.header;
    const bool has_moves = moves.moves > 0;
    *launch = ProgramLaunch{};
    if (!fits_lanes(header, call))
        return false;
    const Cut cut = cut_of(header, call);
    if (cut.most_tile_bytes == 0)
        return false;
    const uint64_t part_chunks = header.chunks;
    launch->part_bytes = call.count * type_bytes(call.type);
    launch->chunk_bytes = round_up((launch->part_bytes + part_chunks - 1) / part_chunks, kGrain);
    launch->instance_bytes =
        round_up((launch->chunk_bytes + call.nchannels - 1) / call.nchannels, kGrain);
    const uint64_t tile = std::min(cut.most_tile_bytes, std::max(launch->instance_bytes, kGrain));
    const uint64_t tiles = (launch->instance_bytes + tile - 1) / tile;
    launch->advance = tiles * header.longest_threadblock + 1;
    launch->ranks = header.ranks;
    launch->part_chunks = static_cast<uint32_t>(part_chunks);
    launch->instances = call.nchannels;
    launch->tiles = static_cast<uint32_t>(tiles);
    launch->tile_bytes = static_cast<uint32_t>(tile);
    launch->slot_bytes = static_cast<uint32_t>(cut.slot_bytes);
    launch->lane_bytes = launch->slot_bytes * kSlots;
    launch->connections = header.most_connections;
    launch->scratch_chunks = has_moves ? moves.scratch_chunks : header.most_scratch_chunks;
    launch->longest = header.longest_threadblock;
    launch->type = call.type;
    launch->reduction = call.reduction;
    launch->send = static_cast<const char *>(call.send);
    launch->receive = static_cast<char *>(call.receive);
    if (has_moves)
        make_one_tile(header, call.protocol, moves, launch);
    return tiles <= kMostNumbers && launch->advance <= kMostNumbers;
}

bool has_room_for_threadblocks(const tuccl_program &program, const tuccl_call &call) {
    return call.nchannels * program.header->most_threadblocks <= kMostProgramBlocks;
}

bool add_program_need(const tuccl_program &program, const tuccl_call &call, tuccl_staging *need) {
    const tuccl_program_header &header = *program.header;
    if (!fits_lanes(header, call))
        return false;
    const Cut cut = cut_of(header, call);
    if (cut.most_tile_bytes == 0)
        return false;
    uint64_t &half = need->half_bytes[call.protocol];
    half = std::max(half, lines_bytes(header.most_connections, call.nchannels, cut.slot_bytes));
    need->scratch_bytes =
        std::max(need->scratch_bytes,
                 scratch_bytes(header.most_scratch_chunks, call.nchannels, cut.most_tile_bytes));
    return true;
}

size_t program_area_bytes(const tuccl_staging &staging) {
    return lines_first(staging, TUCCL_PROTOCOLS) + staging.scratch_bytes;
}

bool place_launch(const tuccl_staging &staging, uint32_t protocol, ProgramLaunch *launch) {
    launch->half_bytes = staging.half_bytes[protocol];
    launch->ll_half_bytes = staging.half_bytes[TUCCL_LL];
    launch->lines_first = lines_first(staging, protocol);
    launch->scratch_first = lines_first(staging, TUCCL_PROTOCOLS);
    return uint64_t{launch->connections} * launch->instances * launch->lane_bytes <=
               launch->half_bytes &&
           scratch_bytes(launch->scratch_chunks, launch->instances, launch->tile_bytes) <=
               staging.scratch_bytes;
}

void set_rank(const tuccl_program &program, uint32_t rank, ptrdiff_t moved, ProgramLaunch *launch) {
    const tuccl_program_rank &own = program.ranks[rank];
    const auto move = [moved](const auto *record) {
        using Pointer = decltype(record);
        return reinterpret_cast<Pointer>(reinterpret_cast<const char *>(record) + moved);
    };
    launch->rank = rank;
    launch->own_blocks = own.threadblocks;
    launch->own_scratch = own.scratch_chunks;
    launch->threadblocks = move(program.threadblocks + own.first_threadblock);
    launch->steps = move(program.steps);
}

} // namespace tuccl
