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
using gpu::pick;

namespace {

gpu::Drawn draw(std::mt19937_64 &random, std::vector<Group> &groups, const Options &options) {
    Group &group = groups[pick(random, groups.size() - 1)];
    Case one = {};
    one.ranks = static_cast<uint32_t>(group.devices.size());
    const auto index = static_cast<uint32_t>(pick(random, group.names.size() - 1));
    const tuccl_program_header &header = *group.at(index).header;
    one.call = gpu::call_of(group, index, static_cast<uint8_t>(pick(random, TUCCL_SIMPLE)));
    gpu::draw_data(random, options, &one);
    // Blocks of ranks that share a GPU must all find room there at once.
    const size_t sharing = gpu::sharing(one.ranks);
    const size_t most_blocks = sharing > 1 ? 100 / sharing : 80;
    const size_t most = std::max<size_t>(1, most_blocks / header.most_threadblocks);
    one.call.nchannels = static_cast<uint16_t>(1 + pick(random, std::min<size_t>(most, 8) - 1));
    one.call.nthreads =
        static_cast<uint16_t>(32 * (1 + pick(random, std::min(512U, options.threads) / 32 - 1)));
    one.call.buffer_bytes = size_t{1} << (15 + pick(random, 8));
    one.in_place = (header.flags & TUCCL_PROGRAM_RUNS_IN_PLACE) != 0 && pick(random, 2) == 0;
    one.times = one.in_place ? 1 : static_cast<uint32_t>(1 + pick(random, 2));
    const size_t blocks = one.call.nchannels * header.most_threadblocks * sharing;
    return {one, &group.devices,
            group.names[index] + " in buffers of " + std::to_string(one.call.buffer_bytes),
            sharing == 1 || blocks <= 100};
}

} // namespace

int main(int argc, char **argv) {
    const Options options = gpu::options_of(argc, argv);
    if (options.words.empty())
        gpu::give_up("check_programs FOLDER [cases] [seed] [OPTIONS]");
    std::vector<Group> groups = gpu::load_groups(options.words[0], 2, options);
    const int result = gpu::run_cases(
        gpu::word_or(options, 1, 2000), gpu::word_or(options, 2, 1), options,
        [&](std::mt19937_64 &random) { return draw(random, groups, options); },
        [](size_t, std::vector<Device> &) {});
    for (Group &group : groups)
        gpu::release(group.devices, options);
    return result;
}
