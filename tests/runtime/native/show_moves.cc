// Shows what each rank of a program does once it is rearranged: a line a move, inputs before the
// arrow, outputs behind it. i3, o3, s3: chunk 3 of input, output, scratch; 2:1.4: chunk 4 of a
// message on the connection that arrives at rank 2 with number 1, `!` where the message ends, `<0`
// where an output gets the first input alone.
//
//   show_moves [-c COMPARISONS] PROGRAM...
#include "moves_launch.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

void show(const tuccl::MovePlace &place) {
    if (place.is_message)
        std::printf(" %u:%u#%u.%u%s", place.rank, place.connection, place.ordinal, place.chunk,
                    place.ends ? "!" : "");
    else
        std::printf(" %c%u", "ios"[place.buffer], place.chunk);
}

void show(const tuccl::Move &move) {
    for (const tuccl::MovePlace &place : move.inputs)
        show(place);
    std::printf(move.completes ? " +!>" : move.adds ? " +>" : " >");
    for (const tuccl::MovePlace &place : move.outputs) {
        show(place);
        if (!move.adds && move.inputs.size() > 1)
            std::printf("<%u", place.from);
    }
    std::printf("\n");
}

} // namespace

int main(int count, char **arguments) {
    const bool limited = count > 2 && std::strcmp(arguments[1], "-c") == 0;
    uint64_t comparisons =
        limited ? std::strtoull(arguments[2], nullptr, 10) : tuccl::kMostComparisons;
    for (int i = limited ? 3 : 1; i < count; i++) {
        std::FILE *file = std::fopen(arguments[i], "rb");
        std::vector<uint64_t> words(1 << 17);
        const size_t bytes =
            file == nullptr ? 0 : std::fread(words.data(), 1, words.size() * 8, file);
        if (file != nullptr)
            std::fclose(file);
        tuccl_program program;
        char why[128];
        if (!tuccl_program_check(words.data(), bytes, &program, why, sizeof why)) {
            std::fprintf(stderr, "%s: %s\n", arguments[i], why);
            return 1;
        }
        const tuccl::Moves moves = tuccl::moves_of(program, &comparisons);
        const tuccl::MovesNeed need = tuccl::need_of(moves);
        std::printf("%s%s: %u moves, %u operands, %u links\n", arguments[i],
                    moves.all_receive_from_all ? ", all receive from all" : "", need.moves,
                    need.operands, need.links);
        for (size_t rank = 0; rank < moves.ranks.size(); rank++) {
            std::printf("rank %zu\n", rank);
            for (const tuccl::Move &move : moves.ranks[rank].moves)
                show(move);
        }
    }
    return 0;
}
