/* Programs rearranged so that one threadblock does all that a rank does.
 *
 * In every step a thread moves the same bytes of each chunk, so if one threadblock takes all of a
 * rank's steps, in an order in which all ranks' programs come to their end, no step waits for
 * another one of its rank: what is left to wait for are messages. Steps of one threadblock can be
 * taken together, too. A move loads some values at once, of chunks and of messages, may add them
 * up, and puts what it has into chunks and messages. */
#ifndef TUCCL_EXECUTOR_PROGRAM_MOVES_H
#define TUCCL_EXECUTOR_PROGRAM_MOVES_H

#include "program.h"

#include <cstdint>
#include <vector>

namespace tuccl {

// Values that a move loads at once, and places that it puts them into.
constexpr uint32_t kMostInputs = 8;
constexpr uint32_t kMostOutputs = 16;

// A chunk of a buffer, or one of a message.
struct MovePlace {
    bool is_message;
    bool ends;           // Of an outgoing message: it is whole with this chunk.
    uint8_t from;        // Of an output: the input that it gets, where they are not added up.
    uint8_t buffer;      // Of a chunk of this rank.
    uint8_t ordinal;     // Of a message: its number in its connection and tile, from 1.
    uint8_t per_tile;    // Messages of its connection.
    uint8_t rank;        // Where the connection arrives,
    uint16_t connection; // and its number there.
    uint32_t chunk;      // Of the buffer, or of the message.
};

struct Move {
    std::vector<MovePlace> inputs;
    std::vector<MovePlace> outputs;
    bool adds;      // Inputs are added up; else each goes to outputs of its own.
    bool completes; // TUCCL_STEP_COMPLETES.
    uint32_t round; // Moves of a round need messages of earlier ones alone.
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

// What moves need of a launch, the same on all ranks; all 0 where there are none.
struct MovesNeed {
    uint32_t operands;
    uint32_t moves;
    uint32_t links;
    uint32_t messages;       // Most of a connection in a tile.
    uint32_t scratch_chunks; // Some are not needed any more.
};
MovesNeed need_of(const Moves &moves);

// How much may be looked at while programs are rearranged: pairs of places that are compared. The
// same for all ranks, which must rearrange the same programs. A schedule of eight ranks takes
// sixteen thousand at most; all of this takes about a second.
constexpr uint64_t kMostComparisons = uint64_t{1} << 25;

// Of a sound program; empty where it does too much, or `comparisons` are used up, from which its
// own are taken. Never more than a few hundred moves are held for a rank, however much its steps
// move.
Moves moves_of(const tuccl_program &program, uint64_t *comparisons);

} // namespace tuccl

#endif
