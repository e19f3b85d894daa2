/* Parameters of a kernel that runs moves (program_moves.h): a rank's moves with the addresses of
 * this call, all in kernel parameters, so that the first load is one of data. */
#ifndef TUCCL_EXECUTOR_MOVES_LAUNCH_H
#define TUCCL_EXECUTOR_MOVES_LAUNCH_H

#include "program_moves.h"
#include "program_staging.h"

#include <cstddef>
#include <cstdint>

#ifndef __CUDACC__
#include "host_arithmetic.h"
#endif

namespace tuccl {

enum : uint8_t {
    kMoveAdds = 1,
    kMoveCompletes = 2,
    kMoveEnds = 4, // The move ends a message.
};

// Operands are contiguous, inputs before outputs. Records are unpacked in registers, since each
// load of a parameter is slow.
struct MoveRecord {
    uint64_t bits; // 8 bits each: inputs, outputs, flags, mask of inputs that are messages; then
                   // first operand.

    __device__ __forceinline__ uint32_t inputs() const {
        return bits & 0xFF;
    }
    __device__ __forceinline__ uint32_t outputs() const {
        return bits >> 8 & 0xFF;
    }
    __device__ __forceinline__ bool has(uint32_t flag) const {
        return (bits >> 16 & flag) != 0;
    }
    __device__ __forceinline__ uint32_t messages() const {
        return bits >> 24 & 0xFF;
    }
    __device__ __forceinline__ uint32_t first() const {
        return static_cast<uint32_t>(bits >> 32);
    }
};

enum : uint8_t {
    kOperandIsMessage = 1,
    kOperandEnds = 2,
    kOperandIsScratch = 4,
};

struct Operand {
    // Of a chunk; of a message: of its slot, or of its connection's first one where there are
    // several tiles; in the first instance and half.
    char *address;
    // Of a chunk: the bytes that exist from there on, 48 bits. Of a message: ordinal, messages of a
    // tile, rank and connection, 8 each, chunk in the message, 16. Then flags, and the input that
    // an output gets.
    uint64_t bits;

    __device__ __forceinline__ uint64_t existing() const {
        return bits & 0xFFFFFFFFFFFF;
    }
    __device__ __forceinline__ uint32_t ordinal() const {
        return bits & 0xFF;
    }
    __device__ __forceinline__ uint32_t per_tile() const {
        return bits >> 8 & 0xFF;
    }
    __device__ __forceinline__ uint32_t rank() const {
        return bits >> 16 & 0xFF;
    }
    __device__ __forceinline__ uint32_t connection() const {
        return bits >> 24 & 0xFF;
    }
    __device__ __forceinline__ uint32_t chunk() const {
        return bits >> 32 & 0xFFFF;
    }
    __device__ __forceinline__ bool has(uint32_t flag) const {
        return (bits >> 48 & flag) != 0;
    }
    __device__ __forceinline__ uint32_t from() const {
        return static_cast<uint32_t>(bits >> 56);
    }
};
static_assert(sizeof(Operand) == 16 && sizeof(MoveRecord) == 8, "what is loaded at once");

template <uint32_t kOperands, uint32_t kMoves, uint32_t kLinks, bool kPlain> struct MovesOf {
    static constexpr bool kIsPlain = kPlain;
    static constexpr uint32_t kMostOperands = kOperands;
    static constexpr uint32_t kMostMoves = kMoves;
    static constexpr uint32_t kMostLinks = kLinks;

    uint8_t moves;
    uint8_t outgoing; // Links; incoming ones follow.
    uint8_t incoming;
    uint8_t all_receive_from_all;
    MoveRecord move[kMoves];
    Operand operand[kOperands];
    ProgramLaunch plan;
    Link link[kLinks];
};

// Most programs fit FewMoves; CUDA takes 4 KB of parameters. FewMoves is for launches of one tile
// whose buffers and sizes are multiples of 16 bytes, as most are: fetching the longer code of the
// general case would take as long as the rest.
using FewMoves = MovesOf<48, 14, 32, true>;
using ManyMoves = MovesOf<184, 64, 64, false>;
static_assert(sizeof(ManyMoves) <= 4096, "parameters of a kernel");

template <typename Launch> bool has_room(const MovesNeed &need) {
    return need.moves > 0 && need.operands <= Launch::kMostOperands &&
           need.moves <= Launch::kMostMoves && need.links <= Launch::kMostLinks;
}

// Returns whether FewMoves suffices for a launch.
inline bool is_plain(const MovesNeed &need, const ProgramLaunch &plan) {
    const auto misplaced = reinterpret_cast<uintptr_t>(plan.send) |
                           reinterpret_cast<uintptr_t>(plan.receive) | plan.part_bytes;
    return has_room<FewMoves>(need) && plan.tiles == 1 && misplaced % 16 == 0;
}

// Destinations of a rank's records.
struct MoveRecords {
    MoveRecord *moves;
    Operand *operands;
    Link *links;
};
void write_records(const RankMoves &rank, const ProgramLaunch &plan, const MoveRecords &records);

// Sets the moves of a launch whose `plan` is set.
template <typename Launch> void set_moves(const Moves &moves, Launch *launch) {
    const RankMoves &own = moves.ranks[launch->plan.rank];
    launch->moves = static_cast<uint8_t>(own.moves.size());
    launch->outgoing = static_cast<uint8_t>(own.outgoing.size());
    launch->incoming = static_cast<uint8_t>(own.incoming.size());
    launch->all_receive_from_all = moves.all_receive_from_all ? 1 : 0;
    write_records(own, launch->plan, {launch->move, launch->operand, launch->link});
}

} // namespace tuccl

#endif
