/* What a kernel that runs moves (program_moves.h) is given: a rank's moves with the addresses of
 * this call, all of it in the kernel's parameters, so that nothing is loaded before the first
 * byte of data is. */
#ifndef TUCCL_EXECUTOR_MOVES_LAUNCH_H
#define TUCCL_EXECUTOR_MOVES_LAUNCH_H

#include "program_moves.h"
#include "program_staging.h"

#include <cstddef>
#include <cstdint>

namespace tuccl {

enum : uint8_t {
    kMoveAdds = 1,
    kMoveCompletes = 2,
    kMoveEnds = 4, // It ends a message.
};

// Operands lie behind one another, inputs before outputs.
struct MoveRecord {
    uint8_t inputs;
    uint8_t outputs;
    uint8_t flags;
    uint8_t messages; // A bit for each input that is one.
    uint32_t first;
};

enum : uint8_t {
    kOperandIsMessage = 1,
    kOperandEnds = 2,
    kOperandIsScratch = 4,
};

struct Operand {
    // Of a chunk; of a message: of the first slot of its connection's first instance.
    char *address;
    // Of a chunk: the bytes that exist from there on, 48 bits. Of a message: ordinal, messages of a
    // tile, rank and connection; and its chunk.
    uint32_t low;
    uint16_t high;
    uint8_t flags;
    uint8_t from;
};
static_assert(sizeof(Operand) == 16 && sizeof(MoveRecord) == 8, "what is loaded at once");

template <uint32_t kOperands, uint32_t kMoves, uint32_t kLinks> struct MovesOf {
    static constexpr uint32_t kMostOperands = kOperands;
    static constexpr uint32_t kMostMoves = kMoves;
    static constexpr uint32_t kMostLinks = kLinks;

    ProgramLaunch plan;
    uint16_t moves;
    uint8_t outgoing; // Links; incoming ones lie behind them.
    uint8_t incoming;
    uint8_t everyone_hears;
    MoveRecord move[kMoves];
    Operand operand[kOperands];
    Link link[kLinks];
};

// Most programs find room in the first; CUDA takes 4 KB of parameters.
using FewMoves = MovesOf<48, 14, 32>;
using ManyMoves = MovesOf<184, 64, 64>;
static_assert(sizeof(ManyMoves) <= 4096, "parameters of a kernel");

// What a program needs of a launch, the same on all ranks; all 0: it has no moves.
struct MovesNeed {
    uint32_t operands;
    uint32_t moves;
    uint32_t links;
    uint32_t messages; // Most of a connection in a tile.
};
MovesNeed need_of(const Moves &moves);

template <typename Launch> bool has_room(const MovesNeed &need) {
    return need.moves > 0 && need.operands <= Launch::kMostOperands &&
           need.moves <= Launch::kMostMoves && need.links <= Launch::kMostLinks;
}

// Where a rank's records go.
struct MoveRecords {
    MoveRecord *moves;
    Operand *operands;
    Link *links;
};
void write_records(const RankMoves &rank, const ProgramLaunch &plan, const MoveRecords &records);

// `launch->plan` is filled in already.
template <typename Launch> void set_moves(const Moves &moves, Launch *launch) {
    const RankMoves &own = moves.ranks[launch->plan.rank];
    launch->moves = static_cast<uint16_t>(own.moves.size());
    launch->outgoing = static_cast<uint8_t>(own.outgoing.size());
    launch->incoming = static_cast<uint8_t>(own.incoming.size());
    launch->everyone_hears = moves.everyone_hears ? 1 : 0;
    write_records(own, launch->plan, {launch->move, launch->operand, launch->link});
}

} // namespace tuccl

#endif
