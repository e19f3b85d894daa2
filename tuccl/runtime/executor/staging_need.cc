#include "staging_need.h"

#include "byte_counts.h"
#include "program_plan.h"
#include "staging.h"
#include "statement_plan.h"
#include "uniform_plan.h"

#include <algorithm>
#include <iterator>

// One half of a protocol's lines for stages, whose calls are divided into launches beyond that.
// Tests are compiled with less.
#ifndef TUCCL_MOST_STAGE_LINES_BYTES
#define TUCCL_MOST_STAGE_LINES_BYTES (16 << 20)
#endif

namespace tuccl {

namespace {

constexpr uint64_t kMostStageLinesBytes = TUCCL_MOST_STAGE_LINES_BYTES;

// The program of a rule; false without one.
bool find(const void *programs, const Rule &rule, tuccl_program *program) {
    return programs != nullptr && tuccl_programs_at(programs, rule.program, program);
}

// The largest call that memory is taken for: a range without end goes on to sizes that no device
// holds, whose products would not fit 64 bits.
uint64_t largest_of(const Rule &rule) {
    constexpr uint64_t kMost = uint64_t{1} << 46;
    return std::min(rule.max_bytes, kMost);
}

// Bytes that one rank sends another in one phase of the largest call.
uint64_t message_bytes(uint32_t operation, const Rule &rule, uint32_t ranks) {
    if (rule.pattern == TUCCL_PATTERN_ONE_PHASE)
        return largest_of(rule);
    // Shards and blocks; shards are whole 16 bytes.
    return operation == TUCCL_ALL_REDUCE ? divided_up(largest_of(rule), 16 * uint64_t{ranks}) * 16
                                         : divided_up(largest_of(rule), ranks);
}

void add_pattern_need(uint32_t operation, const Rule &rule, uint32_t ranks, tuccl_staging *need) {
    const WireUnit &unit = kWireUnits[rule.protocol];
    // Calls above the maximum are divided into several launches.
    const uint64_t units =
        std::min(divided_up(message_bytes(operation, rule, ranks), unit.data_bytes),
                 most_part(rule.protocol, ranks) / unit.line_bytes);
    const uint64_t part = round_up(units * unit.line_bytes, kPartGrain);
    const uint32_t phases = rule.pattern == TUCCL_PATTERN_TWO_PHASE ? kPhases : 1;
    uint32_t &wanted = need->part_bytes[rule.protocol];
    wanted = std::max(wanted, static_cast<uint32_t>(part));
    need->phases[rule.protocol] = std::max(need->phases[rule.protocol], phases);
}

void add_interpreter_need(uint32_t operation, const Rule &rule, const tuccl_program &program,
                          tuccl_staging *need) {
    tuccl_call call = {};
    call.operation = static_cast<uint8_t>(operation);
    call.type = TUCCL_UINT8;
    call.root = static_cast<uint8_t>(program.header->root);
    call.protocol = rule.protocol;
    call.nchannels = rule.nchannels;
    call.nthreads = rule.nthreads;
    call.buffer_bytes = rule.buffer_bytes;
    (void)add_program_need(program, call, need); // What it cannot be is NCCL's.
}

void add_uniform_need(const Rule &rule, const tuccl_program &program, const Grid &grid,
                      tuccl_staging *need) {
    for_largest_calls(
        program, largest_of(rule), rule.buffer_bytes, [&](const Slicing &slicing, uint64_t) {
            const tuccl_program_header &header = *program.header;
            const uint64_t chunk_bytes = largest_chunk(program, slicing);
            for (uint32_t i = 0; i < header.phase_count; i++) {
                const tuccl_phase &phase = program.phases[i];
                if (phase.kind != TUCCL_PHASE_LOCAL)
                    continue;
                const uint32_t blocks = phase.operation == TUCCL_ALL_REDUCE ? 1 : grid.local_ranks;
                Rule local = rule;
                local.pattern = phase.pattern;
                local.max_bytes = phase.chunks * chunk_bytes * blocks;
                add_pattern_need(phase.operation, local, grid.local_ranks, need);
            }
        });
}

void add_statement_need(const Rule &rule, const tuccl_program &program, tuccl_staging *need) {
    const ChunkCut cut = largest_cut(*program.header, largest_of(rule));
    const uint64_t most = std::min<uint64_t>(kMostStageLinesBytes, kMostHalfBytes[rule.protocol]);
    const uint64_t lines =
        most_arrivals(program) * kWireUnits[rule.protocol].lines_of(cut.chunk_bytes);
    uint64_t &half = need->half_bytes[rule.protocol];
    half = std::max(half, round_up(std::min(lines, most), kPartGrain));
}

} // namespace

tuccl_staging staging_need(const Decision &decision, const void *programs, const Grid &grid) {
    tuccl_staging need = {};
    decision.for_each([&](uint32_t operation, const Rule &rule) {
        tuccl_program program;
        if (grid.nodes == 1 &&
            has_pattern_kernel(operation, rule.pattern, rule.protocol, grid.local_ranks))
            add_pattern_need(operation, rule, grid.local_ranks, &need);
        else if (!find(programs, rule, &program))
            return;
        else if (grid.nodes == 1)
            add_interpreter_need(operation, rule, program, &need);
        else if (tuccl_program_has_statements(&program))
            add_statement_need(rule, program, &need);
        else
            add_uniform_need(rule, program, grid, &need);
    });
    return need;
}

uint64_t scratch_need(const Decision &decision, const void *programs) {
    uint64_t need = 0;
    decision.for_each([&](uint32_t, const Rule &rule) {
        tuccl_program program;
        if (!find(programs, rule, &program))
            return;
        const uint64_t of_rule =
            tuccl_program_has_statements(&program)
                ? statement_scratch_bytes(*program.header,
                                          largest_cut(*program.header, largest_of(rule)))
                : most_scratch(program, largest_of(rule), rule.buffer_bytes);
        need = std::max(need, of_rule);
    });
    return std::min(need, kMostScratchBytes);
}

NetworkNeed network_need_of(const Rule &rule, const void *programs) {
    NetworkNeed need;
    tuccl_program program;
    if (!find(programs, rule, &program))
        return need;
    const bool has_rounds = tuccl_program_has_statements(&program);
    (has_rounds ? need.round_lanes : need.lanes) = program.header->lanes;
    return need;
}

NetworkNeed network_need(const Decision &decision, const void *programs) {
    NetworkNeed need;
    decision.for_each([&](uint32_t, const Rule &rule) {
        const NetworkNeed of_rule = network_need_of(rule, programs);
        need.lanes = std::max(need.lanes, of_rule.lanes);
        need.round_lanes = std::max(need.round_lanes, of_rule.round_lanes);
    });
    return need;
}

tuccl_staging most_staging(uint32_t ranks) {
    tuccl_staging most = {};
    std::copy(std::begin(kMostHalfBytes), std::end(kMostHalfBytes), most.half_bytes);
    most.scratch_bytes = kMostProgramScratchBytes;
    const bool has_kernels = ranks > 0 && ranks <= kMostKernelRanks;
    for (const uint32_t protocol : {TUCCL_LL, TUCCL_LL128}) {
        most.part_bytes[protocol] = has_kernels ? most_part(protocol, ranks) : 0;
        most.phases[protocol] = has_kernels ? kPhases : 0;
    }
    return most;
}

uint64_t staging_bytes(const tuccl_staging &staging, uint32_t ranks) {
    uint64_t parts = 0;
    for (uint32_t protocol = 0; protocol < TUCCL_PROTOCOLS; protocol++)
        parts += uint64_t{staging.phases[protocol]} * staging.part_bytes[protocol];
    return 2 * ranks * parts + program_area_bytes(staging);
}

} // namespace tuccl
