/* Programs rearranged so that one threadblock does all work of a rank.
 *
 * In every step a thread moves the same bytes of each chunk, so if one threadblock performs all of
 * a rank's steps, in an order in which all ranks' programs complete, no step waits for another of
 * its rank, only for messages. Steps of one threadblock can also be combined: a move loads several
 * values of chunks and messages at once, may sum them, and stores the results into chunks and
 * messages. */
#ifndef TUCCL_EXECUTOR_PROGRAM_MOVES_H
#define TUCCL_EXECUTOR_PROGRAM_MOVES_H

#include "program.h"

#include <cstdint>
#include <vector>

namespace tuccl {

// Most inputs and outputs of a move.
constexpr uint32_t kMostInputs = 8;
constexpr uint32_t kMostOutputs = 16;

// A chunk of a buffer or of a message.
struct MovePlace {
    bool is_message;
    bool ends;           // Outgoing message: this chunk completes it.
    uint8_t from;        // Output: index of its input, unless inputs are summed.
    uint8_t buffer;      // Buffer of a chunk of this rank.
    uint8_t ordinal;     // Message: its number in its connection and tile, from 1.
    uint8_t per_tile;    // Messages of its connection.
    uint8_t rank;        // Where the connection arrives,
    uint16_t connection; // and its number there.
    uint32_t chunk;      // Index in the buffer or in the message.
};

struct Move {
    std::vector<MovePlace> inputs;
    std::vector<MovePlace> outputs;
    bool adds;      // Inputs are summed; otherwise each goes to its own outputs.
    bool completes; // TUCCL_STEP_COMPLETES.
    uint32_t round; // Moves of a round depend on messages of earlier rounds only.
};

// The other end of a connection.
struct Link {
    uint8_t rank;
    uint8_t connection; // Its number where it arrives.
    uint8_t per_tile;
};

struct RankMoves {
    std::vector<Move> moves;
    std::vector<Link> outgoing;
    std::vector<Link> incoming;
};

struct Moves {
    std::vector<RankMoves> ranks; // Empty: the program cannot be rearranged.
    // No rank ends before all others have begun.
    bool all_receive_from_all;
};

// Resources of a launch that runs moves, the same on all ranks; all 0 without moves.
struct MovesNeed {
    uint32_t operands;
    uint32_t moves;
    uint32_t links;
    uint32_t messages;       // Most messages of a connection in a tile.
    uint32_t scratch_chunks; // May be fewer than the program's.
};
MovesNeed need_of(const Moves &moves);

// Limit on comparisons of places while programs are rearranged. The same on all ranks, which must
// rearrange the same programs. A schedule of eight ranks takes sixteen thousand at most; the limit
// takes about a second.
constexpr uint64_t kMostComparisons = uint64_t{1} << 25;

// Rearranges a sound program; returns no moves if it is too large or uses up `comparisons`, which
// it decreases. It never holds more than a few hundred moves of a rank.
Moves moves_of(const tuccl_program &program, uint64_t *comparisons);

} // namespace tuccl

#endif
