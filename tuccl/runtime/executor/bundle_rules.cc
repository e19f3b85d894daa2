#include "bundle_rules.h"

#include "staged_plan.h"

extern "C" {
#include "bundle.h"
#include "phased.h"
#include "program.h"
}

#include <algorithm>
#include <cstring>

namespace tuccl {

namespace {

constexpr uint32_t kMostThreads = 1024;

bool has_root(uint32_t operation) {
    return operation == TUCCL_BROADCAST || operation == TUCCL_REDUCE;
}

bool is_for(const tuccl_phased &phased, const Grid &grid) {
    return grid.has_equal_nodes() && phased.header->nodes == grid.nodes &&
           phased.header->local_ranks == grid.local_ranks;
}

bool is_across(const void *programs, uint32_t index, const Grid &grid) {
    tuccl_phased phased;
    tuccl_staged staged;
    return (tuccl_phased_at(programs, index, &phased) && is_for(phased, grid)) ||
           (tuccl_staged_at(programs, index, &staged) && is_for(staged, grid));
}

// Returns whether any of the checked programs is for such a communicator.
bool has_program_for(const void *programs, const Grid &grid) {
    tuccl_program program;
    for (uint32_t index = 0; index < tuccl_programs_count(programs); index++)
        if (grid.nodes == 1 ? tuccl_programs_at(programs, index, &program) &&
                                  program.header->ranks == grid.local_ranks
                            : is_across(programs, index, grid))
            return true;
    return false;
}

// Plans of phases have no roots.
bool make_rule_across(const tuccl_entry_record &entry, const void *programs, uint32_t operation,
                      const Grid &grid, Rule *rule) {
    tuccl_phased phased;
    tuccl_staged staged;
    rule->pattern = TUCCL_PATTERN_NONE;
    rule->root = kAnyRoot;
    if (!is_across(programs, entry.schedule, grid))
        return false;
    if (tuccl_phased_at(programs, entry.schedule, &phased))
        return phased.header->operation == operation;
    if (!tuccl_staged_at(programs, entry.schedule, &staged) || staged.header->root >= kAnyRoot)
        return false;
    if (has_root(operation))
        rule->root = static_cast<uint8_t>(staged.header->root);
    return staged.header->operation == operation;
}

bool make_local_rule(const tuccl_entry_record &entry, const void *programs, uint32_t operation,
                     uint32_t ranks, Rule *rule) {
    tuccl_program program;
    if (!tuccl_programs_at(programs, entry.schedule, &program) ||
        program.header->operation != operation || program.header->ranks != ranks)
        return false;
    rule->pattern = program.header->pattern;
    // Patterns serve every root, a program only its own.
    const bool any_root = !has_root(operation) || rule->pattern != TUCCL_PATTERN_NONE;
    rule->root = any_root ? kAnyRoot : program.header->root;
    return true;
}

} // namespace

bool make_rule(const tuccl_entry_record &entry, const tuccl_bundle &bundle, uint32_t operation,
               const Grid &grid, Rule *rule) {
    if (entry.schedule >= tuccl_programs_count(bundle.programs) ||
        entry.schedule_nthreads > kMostThreads)
        return false;
    rule->min_bytes = entry.min_bytes;
    rule->max_bytes = entry.max_bytes;
    rule->buffer_bytes = entry.schedule_buffer_bytes;
    rule->program = entry.schedule;
    rule->nchannels = entry.schedule_nchannels;
    rule->nthreads = static_cast<uint16_t>(entry.schedule_nthreads);
    rule->protocol = entry.schedule_protocol;
    return grid.nodes == 1
               ? make_local_rule(entry, bundle.programs, operation, grid.local_ranks, rule)
               : make_rule_across(entry, bundle.programs, operation, grid, rule);
}

bool keep_within(const ScheduleBounds &bounds, const void *programs, Rule *rule) {
    rule->nchannels = std::min(rule->nchannels, bounds.blocks);
    tuccl_phased phased;
    return !tuccl_phased_at(programs, rule->program, &phased) ||
           phased.header->lanes <= bounds.lanes;
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
    tuccl_phased phased;
    for (uint32_t index = 0; index < tuccl_programs_count(programs); index++)
        if (tuccl_phased_at(programs, index, &phased) && is_for(phased, grid))
            most = std::max(most, phased.header->lanes);
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
        tuccl_phased_header header;
        if (record.bytes < sizeof header || record.offset > bundle.program_bytes ||
            bundle.program_bytes - record.offset < sizeof header)
            continue;
        std::memcpy(&header, section + record.offset, sizeof header);
        if (header.version == TUCCL_PHASED_VERSION || header.version == TUCCL_STAGED_VERSION)
            return true;
    }
    return false;
}

} // namespace tuccl
