// How a call across hosts is divided.
//
//     show_phase_plan call PROGRAM COUNT TYPE BUFFER_BYTES
//
// prints slices, elements of one, left-over elements, bytes of a window, windows and bytes of
// scratch memory; then for each slice, phase and call: slice, phase, source, target, count and
// stride. Addresses are a buffer (i, o, s) and an offset. Last the left-over calls, if there are
// any.
//
//     show_phase_plan need BUNDLE NODES LOCAL_RANKS
//
// prints the memory between phases that the table needs and the staging figures, and then a line
// for each call of its ranges, of many sizes and all types, that needs more.
//
//     show_phase_plan stage PROGRAM NODES LOCAL_RANKS RANK
//
// prints the steps of a rank in all stages of a program, in their order: s, a receiver and a line;
// r or rrc, and a line; cpy or re.
#include "plan.h"
#include "staging.h"
#include "staging_need.h"
#include "statement_plan.h"
#include "uniform_plan.h"

extern "C" {
#include "bundle.h"
}

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr uintptr_t kInput = uintptr_t{1} << 44;
constexpr uintptr_t kOutput = uintptr_t{2} << 44;
constexpr uintptr_t kScratch = uintptr_t{3} << 44;

std::string name_of(const void *address) {
    const auto value = reinterpret_cast<uintptr_t>(address);
    const char *names = "?ios";
    return names[value >> 44] + std::to_string(value & ((uintptr_t{1} << 44) - 1));
}

void show(const char *what, const tuccl::PhaseCall &call) {
    std::printf("%s %s %s %" PRIu64 " %" PRIu64 "\n", what, name_of(call.source).c_str(),
                name_of(call.target).c_str(), call.count, call.stride_bytes);
}

class ReadProgram {
  public:
    explicit ReadProgram(const char *path) {
        std::ifstream file(path, std::ios::binary);
        const std::string bytes{std::istreambuf_iterator<char>(file), {}};
        words_.resize((bytes.size() + 7) / 8);
        std::memcpy(words_.data(), bytes.data(), bytes.size());
        char why[200];
        if (!tuccl_program_check(words_.data(), bytes.size(), &program, why, sizeof why)) {
            std::fprintf(stderr, "%s\n", why);
            std::exit(2);
        }
    }
    tuccl_program program;

  private:
    std::vector<uint64_t> words_;
};

int show_stages(char **arguments) {
    const ReadProgram read(arguments[0]);
    const auto number = [&](int i) { return static_cast<uint32_t>(std::atoi(arguments[i])); };
    const uint32_t local_ranks = number(2);
    const tuccl::Grid grid = {number(1), local_ranks, number(3) / local_ranks,
                              number(3) % local_ranks};
    std::vector<tuccl_stage_step> steps;
    tuccl::plan_statements(read.program, grid, &steps);
    for (const tuccl_stage_step &step : steps)
        if (step.type == TUCCL_STEP_S)
            std::printf("s %u %u\n", step.receiver, step.line);
        else if (step.type == TUCCL_STEP_R || step.type == TUCCL_STEP_RRC)
            std::printf("%s %u\n", step.type == TUCCL_STEP_R ? "r" : "rrc", step.line);
        else
            std::printf("%s\n", step.type == TUCCL_STEP_CPY ? "cpy" : "re");
    return 0;
}

int show_call(char **arguments) {
    const ReadProgram read(arguments[0]);
    const tuccl_program &program = read.program;
    tuccl_call call = {};
    call.send = reinterpret_cast<const void *>(kInput);
    call.receive = reinterpret_cast<void *>(kOutput);
    call.operation = program.header->operation;
    call.count = std::strtoull(arguments[1], nullptr, 10);
    call.type = static_cast<uint8_t>(std::atoi(arguments[2]));
    call.buffer_bytes = std::strtoull(arguments[3], nullptr, 10);
    const tuccl::Slicing slicing = tuccl::slice_call(program, call);
    std::printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %u %" PRIu64 "\n", slicing.slices,
                slicing.slice_elements, slicing.left_over, slicing.window_bytes, slicing.windows,
                slicing.scratch_bytes());
    const tuccl::PhaseOperands operands(program, call, slicing, reinterpret_cast<char *>(kScratch));
    for (uint64_t slice = 0; slice < slicing.slices; slice++)
        for (uint32_t i = 0; i < program.header->phase_count; i++) {
            const tuccl_phase &phase = program.phases[i];
            for (uint32_t repeat = 0; repeat < tuccl_phase_calls(&phase); repeat++)
                show((std::to_string(slice) + " " + std::to_string(i)).c_str(),
                     operands.of(phase, slice, repeat));
        }
    if (slicing.left_over > 0) {
        show("local", operands.left_over_local());
        show("rail", operands.left_over_rail());
    }
    return 0;
}

// Sizes at both ends of a rule's range, around multiples of a slice's, and others.
std::set<uint64_t> sizes_of(const tuccl::Rule &rule) {
    std::set<uint64_t> sizes = {rule.min_bytes, rule.max_bytes};
    const auto add = [&](uint64_t bytes) {
        if (bytes >= rule.min_bytes && bytes <= rule.max_bytes)
            sizes.insert(bytes);
    };
    for (uint64_t slices = 1; slices <= 70; slices++)
        for (int64_t beside = -40; beside <= 40; beside++)
            add(slices * rule.buffer_bytes + static_cast<uint64_t>(beside));
    for (uint64_t i = 0; i < 200; i++) {
        add(rule.min_bytes + i);
        add(rule.max_bytes - i);
    }
    std::mt19937_64 random(7);
    for (int i = 0; i < 300; i++)
        add(rule.min_bytes + random() % (rule.max_bytes - rule.min_bytes + 1));
    return sizes;
}

// Bytes that a rank sends another in a call of a phase inside the node.
uint64_t message_of(const tuccl_phase &phase, uint64_t count, uint64_t element, uint32_t ranks) {
    const uint64_t bytes = count * element;
    return phase.pattern == TUCCL_PATTERN_TWO_PHASE ? (bytes + 16 * ranks - 1) / (16 * ranks) * 16
                                                    : bytes;
}

// Why the staging memory does not hold what a call sends in one launch; empty if it does.
std::string lacking(const tuccl_staging &staging, const tuccl_program &program,
                    const tuccl::Rule &rule, const tuccl_call &call, uint64_t element,
                    const tuccl::Slicing &slicing) {
    const uint32_t ranks = tuccl_program_local_ranks(program.header);
    const bool low_latency = rule.protocol == TUCCL_LL;
    const uint64_t part = staging.part_bytes[rule.protocol];
    const uint32_t rounds = staging.phases[rule.protocol];
    const uint64_t most = tuccl::most_part(rule.protocol, ranks);
    const tuccl::PhaseOperands operands(program, call, slicing, nullptr);
    for (uint32_t i = 0; i < program.header->phase_count && slicing.slices > 0; i++) {
        const tuccl_phase &phase = program.phases[i];
        if (phase.kind != TUCCL_PHASE_LOCAL)
            continue;
        const uint64_t message = message_of(phase, operands.of(phase, 0, 0).count, element, ranks);
        const uint64_t lines = low_latency ? (message + 7) / 8 * 16 : (message + 479) / 480 * 512;
        if (lines > part && part < most)
            return "part";
        if (rounds < (phase.pattern == TUCCL_PATTERN_TWO_PHASE ? 2U : 1U))
            return "rounds";
    }
    return {};
}

int show_need(char **arguments) {
    auto bundle = std::make_shared<tuccl_bundle>();
    char why[200];
    const tuccl::Grid grid = {static_cast<uint32_t>(std::atoi(arguments[1])),
                              static_cast<uint32_t>(std::atoi(arguments[2])), 0, 0};
    if (tuccl_bundle_load(arguments[0], bundle.get(), why, sizeof why) != TUCCL_BUNDLE_GOOD)
        return 2;
    tuccl::Table table;
    table.bundle = bundle;
    const tuccl::Plan plan =
        tuccl::make_plan(std::make_shared<const tuccl::Table>(table), grid, {});
    const uint64_t scratch = plan.scratch_bytes;
    const tuccl_staging &staging = plan.staging;
    std::printf("%" PRIu64 " %u %u %u %u\n", scratch, staging.part_bytes[0], staging.phases[0],
                staging.part_bytes[1], staging.phases[1]);
    static constexpr uint64_t kElements[TUCCL_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    uint64_t calls = 0;
    plan.decision.for_each([&](uint32_t operation, const tuccl::Rule &rule) {
        tuccl_program program;
        if (!tuccl_programs_at(bundle->programs, rule.program, &program))
            std::exit(2);
        for (const uint64_t bytes : sizes_of(rule))
            for (uint8_t type = 0; type < TUCCL_TYPES; type++) {
                tuccl_call call = {};
                call.operation = static_cast<uint8_t>(operation);
                call.type = type;
                call.buffer_bytes = rule.buffer_bytes;
                const uint64_t blocks = operation == TUCCL_ALL_REDUCE ? 1 : grid.ranks();
                call.count = bytes / (kElements[type] * blocks);
                const uint64_t counted = call.count * kElements[type] * blocks;
                if (call.count == 0 || counted < rule.min_bytes)
                    continue;
                calls++;
                const tuccl::Slicing slicing = tuccl::slice_call(program, call);
                if (slicing.scratch_bytes() > scratch && scratch < tuccl::kMostScratchBytes)
                    std::printf("%u %" PRIu64 " type %u: %" PRIu64 " of scratch memory\n",
                                operation, counted, type, slicing.scratch_bytes());
                const std::string lacks =
                    lacking(staging, program, rule, call, kElements[type], slicing);
                if (!lacks.empty())
                    std::printf("%u %" PRIu64 " type %u: %s\n", operation, counted, type,
                                lacks.c_str());
            }
    });
    return calls > 0 ? 0 : 2;
}

} // namespace

int main(int count, char **arguments) {
    if (count == 6 && std::strcmp(arguments[1], "call") == 0)
        return show_call(arguments + 2);
    if (count == 6 && std::strcmp(arguments[1], "stage") == 0)
        return show_stages(arguments + 2);
    if (count == 5 && std::strcmp(arguments[1], "need") == 0)
        return show_need(arguments + 2);
    return 2;
}
