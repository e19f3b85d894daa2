// What staging memory rules need: show_staging RANKS RULES [PROGRAM]; the figures of tuccl_staging
// and the bytes of all of it. PROGRAM becomes program 0 of a section.
#include "rules_file.h"
#include "staging_need.h"

#include "program_layout.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

std::vector<uint64_t> section_of(const char *path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> program{std::istreambuf_iterator<char>(file), {}};
    const tuccl_programs_head head = {1, 0};
    tuccl_programs_record record = {};
    record.offset = sizeof head + sizeof record;
    record.bytes = static_cast<uint32_t>(program.size());
    std::vector<uint64_t> words((record.offset + program.size() + 7) / 8);
    auto *bytes = reinterpret_cast<char *>(words.data());
    std::memcpy(bytes, &head, sizeof head);
    std::memcpy(bytes + sizeof head, &record, sizeof record);
    std::memcpy(bytes + record.offset, program.data(), program.size());
    return words;
}

} // namespace

int main(int count, char **arguments) {
    tuccl::Decision decision;
    if (count < 3 || !tuccl::parse_rules(arguments[2], &decision).empty())
        return 2;
    const auto ranks = static_cast<uint32_t>(std::strtoul(arguments[1], nullptr, 10));
    const std::vector<uint64_t> section =
        count > 3 ? section_of(arguments[3]) : std::vector<uint64_t>{};
    const tuccl_staging need =
        decision.rule_count() == 0
            ? tuccl::most_staging(ranks)
            : tuccl::staging_need(decision, section.empty() ? nullptr : section.data(), ranks);
    std::printf("%u %u %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                need.ll_part, need.ll_phases, need.ll128_part, need.ll128_phases,
                need.program_ll_bytes, need.program_ll128_bytes, need.program_simple_bytes,
                need.program_scratch_bytes, tuccl::staging_bytes(need, ranks));
    return 0;
}
