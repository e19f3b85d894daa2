#include "rails.h"

#include "uniform_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tuccl {

namespace {

constexpr uint64_t kMostElement = 8;

void add(const RailCall &call, std::vector<RailCall> *calls) {
    for (RailCall &known : *calls) {
        if (known.operation != call.operation || known.algorithm != call.algorithm ||
            known.protocol != call.protocol || known.nchannels != call.nchannels)
            continue;
        known.lanes = std::max(known.lanes, call.lanes);
        known.most_bytes = std::max(known.most_bytes, call.most_bytes);
        RankPairs both;
        std::set_union(known.pairs.begin(), known.pairs.end(), call.pairs.begin(), call.pairs.end(),
                       std::back_inserter(both));
        known.pairs = std::move(both);
        return;
    }
    calls->push_back(call);
}

// NCCL sends and receives for other calls of any size.
bool is_chosen_by_size(const RailCall &call) {
    return call.algorithm == 0 && tuccl_asks_tuner(call.operation);
}

RailCall call_of(const tuccl_phase &phase, uint32_t lanes, bool obeys) {
    RailCall call = {};
    call.operation = phase.operation;
    call.lanes = lanes;
    if (obeys) {
        call.algorithm = phase.rail_algorithm;
        call.protocol = phase.rail_protocol;
        call.nchannels = phase.rail_nchannels;
    }
    return call;
}

// Elements that do not divide into chunks are reduced beside the first call along the rail, or
// alone where there are no others.
void add_left_over(const tuccl_program &program, const RailCall &first,
                   std::vector<RailCall> *calls) {
    const tuccl_program_header &header = *program.header;
    if (header.operation != TUCCL_ALL_REDUCE || header.chunks == 1 ||
        program.phases[0].kind != TUCCL_PHASE_LOCAL)
        return;
    RailCall beside = first;
    beside.operation = TUCCL_ALL_REDUCE;
    RailCall alone = {};
    alone.operation = TUCCL_ALL_REDUCE;
    alone.lanes = 1;
    for (RailCall call : {beside, alone}) {
        call.most_bytes = is_chosen_by_size(call) ? header.chunks * kMostElement : 0;
        add(call, calls);
    }
}

void add_rounds(const tuccl_program &program, std::vector<RailCall> *calls) {
    RailCall call = {};
    call.operation = kSend;
    call.pairs = pairs_of(program);
    add(call, calls);
}

} // namespace

void add_rail_calls(const Rule &rule, const void *programs, bool obeys,
                    std::vector<RailCall> *calls) {
    tuccl_program program;
    if (programs == nullptr || !tuccl_programs_at(programs, rule.program, &program))
        return;
    if (tuccl_program_has_statements(&program)) {
        add_rounds(program, calls);
        return;
    }
    const tuccl_program_header &header = *program.header;
    uint64_t chunk_bytes = 0;
    for_largest_calls(program, rule.max_bytes, rule.buffer_bytes,
                      [&](const Slicing &slicing, uint64_t) {
                          chunk_bytes = std::max(chunk_bytes, largest_chunk(program, slicing));
                      });
    bool is_first = true;
    for (uint32_t i = 0; i < header.phase_count; i++) {
        const tuccl_phase &phase = program.phases[i];
        if (phase.kind != TUCCL_PHASE_RAIL)
            continue;
        RailCall call = call_of(phase, header.lanes, obeys);
        const uint64_t blocks = phase.operation == TUCCL_ALL_REDUCE ? 1 : header.nodes;
        if (is_chosen_by_size(call))
            call.most_bytes = phase.chunks * chunk_bytes * blocks * phase.repeats;
        add(call, calls);
        if (is_first)
            add_left_over(program, call, calls);
        is_first = false;
    }
}

std::vector<RailCall> rail_calls(const Decision &decision, const void *programs, bool obeys) {
    std::vector<RailCall> calls;
    decision.for_each(
        [&](uint32_t, const Rule &rule) { add_rail_calls(rule, programs, obeys, &calls); });
    return calls;
}

} // namespace tuccl
