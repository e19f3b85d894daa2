#include "bundle_rules.h"

extern "C" {
#include "bundle.h"
#include "program.h"
}

namespace tuccl {

namespace {

constexpr uint32_t kMostThreads = 1024;

bool has_root(uint32_t operation) {
    return operation == TUCCL_BROADCAST || operation == TUCCL_REDUCE;
}

// Returns whether any of the checked programs is for this number of ranks.
bool has_program_for(const void *programs, uint32_t ranks) {
    tuccl_program program;
    for (uint32_t index = 0; index < tuccl_programs_count(programs); index++)
        if (tuccl_programs_at(programs, index, &program) && program.header->ranks == ranks)
            return true;
    return false;
}

} // namespace

bool make_rule(const tuccl_entry_record &entry, const tuccl_bundle &bundle, uint32_t operation,
               uint32_t ranks, Rule *rule) {
    tuccl_program program;
    if (entry.schedule >= tuccl_programs_count(bundle.programs) ||
        !tuccl_programs_at(bundle.programs, entry.schedule, &program) ||
        program.header->operation != operation || program.header->ranks != ranks ||
        entry.schedule_nthreads > kMostThreads)
        return false;
    rule->min_bytes = entry.min_bytes;
    rule->max_bytes = entry.max_bytes;
    rule->buffer_bytes = entry.schedule_buffer_bytes;
    rule->program = entry.schedule;
    rule->nchannels = entry.schedule_nchannels;
    rule->nthreads = static_cast<uint16_t>(entry.schedule_nthreads);
    rule->pattern = program.header->pattern;
    rule->protocol = entry.schedule_protocol;
    // Patterns serve every root, a program only its own.
    const bool any_root = !has_root(operation) || rule->pattern != TUCCL_PATTERN_NONE;
    rule->root = any_root ? kAnyRoot : program.header->root;
    return true;
}

std::string take_bundle_rules(const std::shared_ptr<const tuccl_bundle> &bundle, uint32_t ranks,
                              bool chooses, Plan *plan) {
    const tuccl_shape_record *shape = tuccl_bundle_shape(bundle.get(), ranks, 1, ranks);
    if ((shape == nullptr && !chooses) || bundle->programs == nullptr)
        return {};
    char why[200];
    if (!tuccl_programs_check(bundle->programs, bundle->program_bytes, why, sizeof why))
        return std::string("its TUCCL_BUNDLE has damaged programs: ") + why;
    for (uint32_t operation = 0; shape != nullptr && operation < kOperations; operation++) {
        const tuccl_range_record range = shape->of_operation[operation];
        for (uint32_t i = range.first; i < range.first + range.count; i++) {
            Rule rule = {};
            if (make_rule(bundle->entries[i], *bundle, operation, ranks, &rule))
                plan->decision.add(operation, rule);
        }
    }
    if (plan->decision.rule_count() > 0 || (chooses && has_program_for(bundle->programs, ranks)))
        plan->bundle = bundle;
    return {};
}

} // namespace tuccl
