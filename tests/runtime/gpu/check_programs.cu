// Runs compiled programs on the GPUs of this host and compares every byte with what it must be:
// random programs of a folder, types, reductions, counts, alignments, in place and out of place,
// protocols, instances, threads, buffer sizes, launches after one another. Exit code 0: all right.
// All ranks in one process, or each in one that --rank names; ranks beyond the GPUs share them.
//
//   check_programs FOLDER [cases] [seed] [--ranks=N] [--rank=R --folder=MEETING] [--exact]
//                  [--largest=BYTES] [--threads=MOST] [--seconds=S]
#include "cases.cuh"
#include "programs.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

using gpu::Case;
using gpu::Device;
using gpu::Group;
using gpu::Options;

namespace {

size_t pick(std::mt19937_64 &random, size_t last) {
    return std::uniform_int_distribution<size_t>(0, last)(random);
}

Case random_case(std::mt19937_64 &random, const Group &group, size_t most_blocks,
                 const Options &options) {
    static constexpr size_t kLargest[] = {1, 17, 1009, 40000, 300000, 2500000};
    Case one = {};
    one.ranks = static_cast<uint32_t>(group.devices.size());
    const auto index = static_cast<uint32_t>(pick(random, group.names.size() - 1));
    const tuccl_program_header &header = *group.at(index).header;
    one.call = gpu::call_of(group, index, static_cast<uint8_t>(pick(random, TUCCL_SIMPLE)));
    one.call.type = static_cast<uint8_t>(pick(random, TUCCL_TYPES - 1));
    one.call.reduction = static_cast<uint8_t>(pick(random, TUCCL_REDUCTIONS - 1));
    const size_t most = std::max<size_t>(1, most_blocks / header.most_threadblocks);
    one.call.nchannels = static_cast<uint16_t>(1 + pick(random, std::min<size_t>(most, 8) - 1));
    one.call.nthreads =
        static_cast<uint16_t>(32 * (1 + pick(random, std::min(512U, options.threads) / 32 - 1)));
    one.call.buffer_bytes = size_t{1} << (15 + pick(random, 8));
    const size_t width = tuccl::type_bytes(one.call.type);
    const size_t largest = std::min(kLargest[pick(random, 5)], options.largest);
    const size_t bytes = 1 + pick(random, largest - 1);
    one.call.count = std::max<size_t>(1, bytes / width);
    one.send_offset = pick(random, 1) != 0 ? 0 : width * pick(random, 16);
    one.receive_offset = pick(random, 1) != 0 ? 0 : width * pick(random, 16);
    one.in_place = (header.flags & TUCCL_PROGRAM_RUNS_IN_PLACE) != 0 && pick(random, 2) == 0;
    one.times = one.in_place ? 1 : static_cast<uint32_t>(1 + pick(random, 2));
    return one;
}

std::string describe(const Case &one, const Group &group) {
    char text[300];
    std::snprintf(text, sizeof text,
                  "%s of %u ranks, type %u reduction %u protocol %u count %zu instances %u "
                  "threads %u buffer %zu times %u offsets %zu %zu%s",
                  group.names[one.call.program].c_str(), one.ranks, one.call.type,
                  one.call.reduction, one.call.protocol, one.call.count, one.call.nchannels,
                  one.call.nthreads, static_cast<size_t>(one.call.buffer_bytes), one.times,
                  one.send_offset, one.receive_offset, one.in_place ? " in place" : "");
    return text;
}

int run_cases(std::vector<Group> &groups, size_t cases, uint64_t seed, const Options &options) {
    std::mt19937_64 random(seed);
    size_t bad = 0;
    size_t done = 0;
    gpu::Clock clock(options);
    for (size_t number = 0; number < cases && clock.goes_on(number); number++) {
        Group &group = groups[pick(random, groups.size() - 1)];
        // Blocks of ranks that share a GPU must all find room there at once.
        const auto ranks = static_cast<uint32_t>(group.devices.size());
        const size_t sharing = gpu::sharing(ranks);
        const Case one = random_case(random, group, sharing > 1 ? 100 / sharing : 80, options);
        const tuccl_program_header &header = *group.at(one.call.program).header;
        if (options.rank != gpu::kAllRanks && options.rank >= ranks)
            continue;
        const Device &any = group.devices[options.rank == gpu::kAllRanks ? 0 : options.rank];
        if (!tuccl_device_supports(any.comm, &one.call) ||
            (sharing > 1 && one.call.nchannels * header.most_threadblocks * sharing > 100))
            continue;
        done++;
        if (options.rank != gpu::kAllRanks)
            std::printf("case %zu: %s\n", number, describe(one, group).c_str());
        if (const size_t wrong = gpu::wrong_bytes(one, group.devices, options)) {
            bad++;
            std::printf("WRONG %zu bytes in case %zu: %s\n", wrong, number,
                        describe(one, group).c_str());
        }
    }
    std::printf("%zu cases on up to %u ranks, %zu wrong\n", done, options.ranks, bad);
    return bad != 0;
}

} // namespace

int main(int argc, char **argv) {
    const Options options = gpu::options_of(argc, argv);
    if (options.words.empty())
        gpu::give_up("check_programs FOLDER [cases] [seed] [OPTIONS]");
    std::vector<Group> groups = gpu::load_groups(options.words[0], 2, options);
    const int result =
        run_cases(groups, gpu::word_or(options, 1, 2000), gpu::word_or(options, 2, 1), options);
    for (Group &group : groups)
        gpu::release(group.devices, options);
    return result;
}
