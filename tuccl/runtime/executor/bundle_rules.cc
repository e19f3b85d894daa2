#include "plan.h"

extern "C" {
#include "bundle.h"
#include "program.h"
}

#include <algorithm>
#include <cstring>

namespace tuccl {

namespace {

constexpr uint32_t kMostThreads = 1024;

// Returns whether any of the checked programs is for such a communicator.
bool has_program_for(const void *programs, const Grid &grid) {
    tuccl_program program;
    for (uint32_t index = 0; index < tuccl_programs_count(programs); index++)
        if (tuccl_programs_at(programs, index, &program) && is_for(program, grid))
            return true;
    return false;
}

} // namespace

bool make_rule(const tuccl_entry_record &entry, const tuccl_bundle &bundle, uint32_t operation,
               const Grid &grid, Rule *rule) {
    tuccl_program program;
    if (entry.schedule_nthreads > kMostThreads ||
        !tuccl_programs_at(bundle.programs, entry.schedule, &program) || !is_for(program, grid) ||
        program.header->operation != operation)
        return false;
    const tuccl_phase &first = program.phases[0];
    rule->pattern = first.kind == TUCCL_PHASE_STEPS ? first.pattern : uint8_t{TUCCL_PATTERN_NONE};
    // Patterns serve every root, a program only its own.
    rule->root = kAnyRoot;
    if (tuccl_has_root(operation) && rule->pattern == TUCCL_PATTERN_NONE) {
        if (program.header->root >= kAnyRoot)
            return false;
        rule->root = static_cast<uint8_t>(program.header->root);
    }
    rule->min_bytes = entry.min_bytes;
    rule->max_bytes = entry.max_bytes;
    rule->buffer_bytes = entry.schedule_buffer_bytes;
    rule->program = entry.schedule;
    rule->nchannels = entry.schedule_nchannels;
    rule->nthreads = static_cast<uint16_t>(entry.schedule_nthreads);
    rule->protocol = entry.schedule_protocol;
    return true;
}

bool keep_within(const ScheduleBounds &bounds, const void *programs, Rule *rule) {
    rule->nchannels = std::min(rule->nchannels, bounds.blocks);
    tuccl_program program;
    return !tuccl_programs_at(programs, rule->program, &program) ||
           !tuccl_program_is_uniform(program.header) || program.header->lanes <= bounds.lanes;
}

std::string take_bundle_rules(const std::shared_ptr<const tuccl_bundle> &bundle, const Grid &grid,
                              bool chooses, Plan *plan) {
    const tuccl_shape_record *shape =
        tuccl_bundle_shape(bundle.get(), grid.ranks(), grid.nodes, grid.ranks_per_node());
    if ((shape == nullptr && !chooses) || bundle->programs == nullptr)
        return {};
    char why[200];
    if (!tuccl_programs_check(bundle->programs, bundle->program_bytes, why, sizeof why))
        return std::string("its TUCCL_BUNDLE has damaged programs: ") + why;
    for (uint32_t operation = 0; shape != nullptr && operation < kOperations; operation++) {
        const tuccl_range_record range = shape->of_operation[operation];
        for (uint32_t i = range.first; i < range.first + range.count; i++) {
            Rule rule = {};
            if (!make_rule(bundle->entries[i], *bundle, operation, grid, &rule))
                continue;
            if (keep_within(plan->bounds, bundle->programs, &rule))
                plan->decision.add(operation, rule);
            else
                plan->rules_of_many_lanes++;
        }
    }
    if (plan->decision.rule_count() > 0 || (chooses && has_program_for(bundle->programs, grid)))
        plan->bundle = bundle;
    return {};
}

uint32_t most_lanes(const void *programs, const Grid &grid) {
    uint32_t most = 1;
    tuccl_program program;
    for (uint32_t index = 0; index < tuccl_programs_count(programs); index++)
        if (tuccl_programs_at(programs, index, &program) && is_for(program, grid))
            most = std::max(most, program.header->lanes);
    return most;
}

bool has_rules_for(const tuccl_bundle &bundle, uint32_t ranks, bool chooses) {
    if (bundle.programs == nullptr)
        return false;
    for (uint32_t nodes = 1; nodes <= ranks; nodes++)
        if (chooses || tuccl_bundle_shape(&bundle, ranks, nodes, 0) != nullptr ||
            (ranks % nodes == 0 &&
             tuccl_bundle_shape(&bundle, ranks, nodes, ranks / nodes) != nullptr))
            return true;
    return false;
}

bool has_rules_across_nodes(const tuccl_bundle &bundle) {
    for (uint32_t at = 0; at < bundle.shape_count; at++) {
        const tuccl_shape_record &shape = bundle.shapes[at];
        for (uint32_t operation = 0; shape.nodes > 1 && operation < kOperations; operation++) {
            const tuccl_range_record range = shape.of_operation[operation];
            for (uint32_t i = range.first; i < range.first + range.count; i++)
                if (bundle.entries[i].schedule != TUCCL_NO_SCHEDULE)
                    return true;
        }
    }
    return false;
}

// Of programs that may not have been checked yet.
bool has_program_across_nodes(const tuccl_bundle &bundle) {
    const auto *section = static_cast<const unsigned char *>(bundle.programs);
    tuccl_programs_head head = {};
    if (section == nullptr || bundle.program_bytes < sizeof head)
        return false;
    std::memcpy(&head, section, sizeof head);
    size_t at = sizeof head;
    for (uint32_t i = 0; i < head.count; i++, at += sizeof(tuccl_programs_record)) {
        tuccl_programs_record record;
        if (bundle.program_bytes - at < sizeof record)
            return false;
        std::memcpy(&record, section + at, sizeof record);
        tuccl_program_header header;
        if (record.bytes < sizeof header || record.offset > bundle.program_bytes ||
            bundle.program_bytes - record.offset < sizeof header)
            continue;
        std::memcpy(&header, section + record.offset, sizeof header);
        if (header.version == TUCCL_PROGRAM_VERSION && header.nodes > 1)
            return true;
    }
    return false;
}

} // namespace tuccl
