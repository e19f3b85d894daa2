// For fuzz_program.c, which is C.
#include "rearrange.h"

#include "program_moves.h"

size_t rearrange(const tuccl_program *program) {
    uint64_t comparisons = tuccl::kMostComparisons;
    size_t moves = 0;
    for (const tuccl::RankMoves &rank : tuccl::moves_of(*program, &comparisons).ranks)
        moves += rank.moves.size();
    return moves;
}
