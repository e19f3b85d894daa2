// Runs compiled programs on the GPUs of this host and compares every byte with what it must be:
// random programs of a folder, types, reductions, counts, alignments, in place and out of place,
// protocols, instances, threads, buffer sizes, launches after one another. Then times of each
// program in graphs of 20 calls, beside the pattern's kernel where it has one. Exit code 0: all
// right. All ranks in one process, or each in one that --rank names; ranks beyond the GPUs share
// them, which is good for the bytes, not for the times.
//
//   check_programs FOLDER [cases] [seed] [--no-times] [--ranks=N] [--rank=R --folder=MEETING]
//                  [--exact] [--largest=BYTES] [--threads=MOST] [--seconds=S]
#include "cases.cuh"
#include "times.cuh"

#include "../../../tuccl/runtime/program.h"

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
using gpu::Options;

namespace {

// Programs of one number of ranks, as a bundle's section.
struct Group {
    std::vector<std::string> names;
    std::string section;
    std::vector<Device> devices;

    const tuccl_program_header &header(uint32_t index) const {
        tuccl_program program;
        if (!tuccl_programs_at(section.data(), index, &program))
            std::exit(2);
        return *program.header;
    }
};

std::vector<char> read_file(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void append(std::string *to, const void *from, size_t bytes) {
    to->append(static_cast<const char *>(from), bytes);
}

std::string section_of(const std::vector<std::vector<char>> &programs) {
    std::string section;
    const tuccl_programs_head head = {static_cast<uint32_t>(programs.size()), 0};
    append(&section, &head, sizeof head);
    uint64_t offset = sizeof head + programs.size() * sizeof(tuccl_programs_record);
    for (const std::vector<char> &program : programs) {
        tuccl_program_header header;
        std::memcpy(&header, program.data(), sizeof header);
        tuccl_programs_record record = {offset, header.bytes, header.crc, {}};
        std::memcpy(record.content_address, header.content_address, sizeof record.content_address);
        append(&section, &record, sizeof record);
        offset += program.size();
    }
    for (const std::vector<char> &program : programs)
        append(&section, program.data(), program.size());
    return section;
}

// FOLDER/<ranks>/<name>.program
Group load_group(const std::filesystem::path &folder, uint32_t ranks, const Options &options) {
    Group group;
    std::vector<std::filesystem::path> paths;
    if (std::filesystem::is_directory(folder / std::to_string(ranks)))
        for (const auto &entry :
             std::filesystem::directory_iterator(folder / std::to_string(ranks)))
            paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<std::vector<char>> programs;
    for (const std::filesystem::path &path : paths) {
        programs.push_back(read_file(path));
        group.names.push_back(path.stem().string());
    }
    if (programs.empty())
        return group;
    group.section = section_of(programs);
    char why[128];
    if (!tuccl_programs_check(group.section.data(), group.section.size(), why, sizeof why)) {
        std::printf("programs of %u ranks: %s\n", ranks, why);
        std::exit(2);
    }
    group.devices = gpu::devices_of(ranks, options);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (!options.owns(rank))
            continue;
        gpu::use_device_of(rank);
        if (const char *reason = tuccl_device_comm_load_programs(
                group.devices[rank].comm, group.section.data(), group.section.size())) {
            std::printf("load: %s\n", reason);
            std::exit(2);
        }
    }
    return group;
}

size_t pick(std::mt19937_64 &random, size_t last) {
    return std::uniform_int_distribution<size_t>(0, last)(random);
}

tuccl_call call_of(const Group &group, uint32_t index, uint8_t protocol) {
    tuccl_call call = {};
    call.operation = group.header(index).operation;
    call.root = group.header(index).root;
    call.protocol = protocol;
    call.program = index;
    return call;
}

Case random_case(std::mt19937_64 &random, const Group &group, size_t most_blocks,
                 const Options &options) {
    static constexpr size_t kLargest[] = {1, 17, 1009, 40000, 300000, 2500000};
    Case one = {};
    one.ranks = static_cast<uint32_t>(group.devices.size());
    const auto index = static_cast<uint32_t>(pick(random, group.names.size() - 1));
    const tuccl_program_header &header = group.header(index);
    one.call = call_of(group, index, static_cast<uint8_t>(pick(random, TUCCL_SIMPLE)));
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
        const tuccl_program_header &header = group.header(one.call.program);
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

struct Best {
    float us = 1e9F;
    tuccl_call call = {};
};

Best best_of(Group &group, const gpu::Room &room, tuccl_call call,
             const std::vector<unsigned> &blocks, bool program) {
    Best best;
    for (const unsigned nchannels : blocks)
        for (const unsigned nthreads : {256U, 512U}) {
            call.nchannels = static_cast<uint16_t>(nchannels);
            call.nthreads = static_cast<uint16_t>(nthreads);
            call.buffer_bytes = size_t{4} << 20;
            call.program = program ? call.program : UINT32_MAX;
            if (!tuccl_device_supports(group.devices[0].comm, &call))
                continue;
            const float us = gpu::time_us(group.devices, room, call, 20);
            if (us < best.us)
                best = {us, call};
        }
    return best;
}

void print_times(Group &group) {
    const size_t ranks = group.devices.size();
    const gpu::Room room(ranks);
    static constexpr const char *kProtocols[] = {"LL", "LL128", "Simple"};
    for (uint32_t index = 0; index < group.names.size(); index++)
        for (size_t bytes : {size_t{1} << 10, size_t{1} << 16, size_t{1} << 20, size_t{1} << 25})
            for (uint8_t protocol = TUCCL_LL; protocol <= TUCCL_SIMPLE; protocol++) {
                if (protocol == TUCCL_LL && bytes > size_t{1} << 20)
                    continue;
                tuccl_call call = call_of(group, index, protocol);
                const bool divides = call.operation == TUCCL_ALL_GATHER ||
                                     call.operation == TUCCL_REDUCE_SCATTER ||
                                     call.operation == TUCCL_ALLTOALL;
                call.type = TUCCL_FLOAT16;
                call.count = bytes / 2 / (divides ? ranks : 1);
                const Best program = best_of(group, room, call, {1, 4, 16}, true);
                call.pattern = group.header(index).pattern;
                const Best pattern = best_of(group, room, call, {1, 8, 32}, false);
                std::printf("%zu ranks %-40s %-6s %9zu bytes %9.2f us, %u instances of %u", ranks,
                            group.names[index].c_str(), kProtocols[protocol], bytes, program.us,
                            program.call.nchannels, program.call.nthreads);
                if (pattern.us < 1e9F)
                    std::printf("; pattern %9.2f us", pattern.us);
                std::printf("\n");
            }
}

} // namespace

int main(int argc, char **argv) {
    const Options options = gpu::options_of(argc, argv);
    if (options.words.empty())
        gpu::give_up("check_programs FOLDER [cases] [seed] [OPTIONS]");
    std::vector<Group> groups;
    for (uint32_t ranks = 2; ranks <= options.ranks; ranks++) {
        Group group = load_group(options.words[0], ranks, options);
        if (!group.names.empty())
            groups.push_back(std::move(group));
    }
    if (groups.empty())
        gpu::give_up(options.words[0] + " holds no programs for so many ranks");
    const int result =
        run_cases(groups, gpu::word_or(options, 1, 2000), gpu::word_or(options, 2, 1), options);
    for (Group &group : groups)
        if (options.times && options.rank == gpu::kAllRanks &&
            group.devices.size() == options.ranks)
            print_times(group);
    for (Group &group : groups)
        gpu::release(group.devices, options);
    return result;
}
