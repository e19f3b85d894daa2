// Compiled programs of a folder, FOLDER/<ranks>/<name>.program, on communicators of their own.
#ifndef TUCCL_TESTS_GPU_PROGRAMS_CUH
#define TUCCL_TESTS_GPU_PROGRAMS_CUH

#include "../../../tuccl/runtime/program.h"
#include "ranks.cuh"

namespace gpu {

// Programs of one number of ranks, as a bundle's section.
struct Group {
    std::vector<std::string> names;
    std::string section;
    std::vector<Device> devices;

    tuccl_program at(uint32_t index) const {
        tuccl_program program;
        if (!tuccl_programs_at(section.data(), index, &program))
            std::exit(2);
        return program;
    }
};

inline std::vector<char> read_file(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void append(std::string *to, const void *from, size_t bytes) {
    to->append(static_cast<const char *>(from), bytes);
}

inline std::string section_of(const std::vector<std::vector<char>> &programs) {
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
inline Group load_group(const std::filesystem::path &folder, uint32_t ranks,
                        const Options &options) {
    Group group;
    std::vector<std::filesystem::path> paths;
    if (std::filesystem::is_directory(folder / std::to_string(ranks)))
        for (const auto &entry :
             std::filesystem::directory_iterator(folder / std::to_string(ranks)))
            if (entry.path().extension() == ".program")
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
    group.devices = devices_of(ranks, options);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (!options.owns(rank))
            continue;
        use_device_of(rank);
        if (const char *reason = tuccl_device_comm_load_programs(
                group.devices[rank].comm, group.section.data(), group.section.size())) {
            std::printf("load: %s\n", reason);
            std::exit(2);
        }
    }
    return group;
}

// Of all numbers of ranks from `fewest` to the options'.
inline std::vector<Group> load_groups(const std::filesystem::path &folder, uint32_t fewest,
                                      const Options &options) {
    std::vector<Group> groups;
    for (uint32_t ranks = fewest; ranks <= options.ranks; ranks++) {
        Group group = load_group(folder, ranks, options);
        if (!group.names.empty())
            groups.push_back(std::move(group));
    }
    if (groups.empty())
        give_up(folder.string() + " holds no programs for so many ranks");
    return groups;
}

inline tuccl_call call_of(const Group &group, uint32_t index, uint8_t protocol) {
    tuccl_call call = {};
    call.operation = group.at(index).header->operation;
    call.root = static_cast<uint8_t>(group.at(index).header->root);
    call.protocol = protocol;
    call.program = index;
    return call;
}

} // namespace gpu

#endif
