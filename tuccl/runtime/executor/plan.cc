#include "plan.h"

#include "choose.h"
#include "staging_need.h"

extern "C" {
#include "bundle.h"
#include "crc32.h"
#include "machine.h"
#include "program.h"
}

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <strings.h>

namespace tuccl {

namespace {

constexpr uint32_t kMostThreads = 1024;

// A variable that is set and not empty: `export NAME=` is how people unset one.
const char *setting(const char *name) {
    const char *value = std::getenv(name);
    return value != nullptr && value[0] != '\0' ? value : nullptr;
}

// Respects settings that forbid NCCL peer-to-peer copies: on some hosts they hang, or damage data.
bool p2p_is_forbidden() {
    const char *disable = setting("NCCL_P2P_DISABLE");
    const char *level = setting("NCCL_P2P_LEVEL");
    return (disable != nullptr && std::strtol(disable, nullptr, 0) == 1) ||
           (level != nullptr && (strcasecmp(level, "LOC") == 0 || std::strcmp(level, "0") == 0));
}

bool sum_is_as_demanded(const tuccl_bundle &bundle, const char *demanded) {
    return demanded == nullptr ||
           (std::strlen(demanded) == 8 && std::strspn(demanded, "0123456789abcdefABCDEF") == 8 &&
            std::strtoul(demanded, nullptr, 16) == bundle.crc);
}

const char *sysfs_root() {
    const char *given = setting("TUCCL_SYSFS");
    return given != nullptr ? given : "/sys";
}

std::string fault_of(const tuccl_bundle &bundle) {
    char why[TUCCL_MACHINE_WHY_BYTES];
    if (!sum_is_as_demanded(bundle, setting("TUCCL_BUNDLE_CRC")))
        return "its TUCCL_BUNDLE has not the CRC that TUCCL_BUNDLE_CRC demands";
    // NICs are for the plugin to compare, communicator by communicator.
    if (!tuccl_machine_matches(sysfs_root(), &bundle, false, why, sizeof why))
        return std::string("its TUCCL_BUNDLE ") + why;
    return {};
}

void read_bundle(const char *path, Table *table) {
    char why[200];
    auto *bundle = new tuccl_bundle;
    if (tuccl_bundle_load(path, bundle, why, sizeof why) != TUCCL_BUNDLE_GOOD) {
        table->fault = std::string("its TUCCL_BUNDLE ") + why;
        delete bundle;
        return;
    }
    table->bundle = std::shared_ptr<tuccl_bundle>(bundle, [](tuccl_bundle *loaded) {
        tuccl_bundle_free(loaded);
        delete loaded;
    });
    table->sum = bundle->crc;
    table->fault = fault_of(*bundle);
    table->gpus_here = tuccl_machine_gpus(sysfs_root(), bundle);
}

// A number with its unit, to a minute; nothing for other text.
std::optional<uint16_t> duration_ms(const char *text) {
    constexpr uint64_t kMostMs = 60'000;
    const size_t digits = std::strspn(text, "0123456789");
    const char *unit = text + digits;
    const uint64_t unit_ms = std::strcmp(unit, "ms") == 0 ? 1 : 1'000;
    if (digits == 0 || digits > 8 || (unit_ms != 1 && std::strcmp(unit, "s") != 0))
        return std::nullopt;
    const uint64_t duration = std::strtoull(text, nullptr, 10) * unit_ms;
    return duration <= kMostMs ? std::optional<uint16_t>(duration) : std::nullopt;
}

// Processes that measure choose call by call: what they choose is not to be changed.
void read_check(Table *table) {
    const char *text = setting("TUCCL_CHECK");
    if (text == nullptr || table->chooses || setting("TUCCL_CONTROL") != nullptr)
        return;
    if (const auto limit_ms = duration_ms(text))
        table->check_ms = *limit_ms;
    else
        table->check_fault =
            "TUCCL_CHECK=" + std::string(text).substr(0, 40) +
            " is not a duration up to a minute, as 200ms or 1s: nothing is checked";
}

// Returns whether a variable is 1; sets the fault if it is neither 1 nor 0.
bool switches_on(const Table &table, const char *name, const char *not_done, std::string *fault) {
    const char *text = setting(name);
    if (text == nullptr || table.chooses || setting("TUCCL_CONTROL") != nullptr)
        return false;
    const bool is_on = std::strcmp(text, "1") == 0;
    if (!is_on && std::strcmp(text, "0") != 0)
        *fault = std::string(name) + "=" + std::string(text).substr(0, 40) +
                 " is neither 0 nor 1: nothing is " + not_done;
    return is_on;
}

void read_guard(Table *table) {
    table->learns = switches_on(*table, "TUCCL_LEARN", "learned", &table->learn_fault);
    table->guards =
        switches_on(*table, "TUCCL_GUARD", "guarded", &table->guard_fault) || table->learns;
}

bool is_of_several_hosts(uint32_t ranks, uint32_t nodes, uint32_t gpus_here) {
    return nodes > 1 || (gpus_here > 0 && ranks > gpus_here);
}

bool has_settings_across_hosts(const tuccl_bundle &bundle, uint32_t gpus_here) {
    for (uint32_t i = 0; i < bundle.setting_count; i++)
        if (is_of_several_hosts(bundle.settings[i].ranks, bundle.settings[i].nodes, gpus_here))
            return true;
    return false;
}

// Whether there is an entry for several hosts, which a schedule won unless all have trials.
bool has_rules_across_hosts(const tuccl_bundle &bundle, uint32_t gpus_here, bool has_trials) {
    for (uint32_t at = 0; at < bundle.shape_count; at++) {
        const tuccl_shape_record &shape = bundle.shapes[at];
        if (!is_of_several_hosts(shape.ranks, shape.nodes, gpus_here))
            continue;
        for (uint32_t operation = 0; operation < kOperations; operation++) {
            const tuccl_range_record range = shape.of_operation[operation];
            for (uint32_t i = range.first; i < range.first + range.count; i++)
                if (has_trials || bundle.entries[i].schedule != TUCCL_NO_SCHEDULE)
                    return true;
        }
    }
    return false;
}

// Whether there is a program for several. Of programs that may not have been checked yet.
bool has_program_across_hosts(const tuccl_bundle &bundle, uint32_t gpus_here) {
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
        if (header.version == TUCCL_PROGRAM_VERSION &&
            is_of_several_hosts(header.ranks, header.nodes, gpus_here))
            return true;
    }
    return false;
}

// The most lanes of a program for such a communicator; 0 without one.
uint32_t most_lanes(const void *programs, const Grid &grid) {
    uint32_t most = 0;
    tuccl_program program;
    for (uint32_t index = 0; index < tuccl_programs_count(programs); index++)
        if (tuccl_programs_at(programs, index, &program) && is_for(program, grid))
            most = std::max(most, program.header->lanes);
    return most;
}

// Takes the schedules that a job may try.
void take_runners_up(const tuccl_bundle &bundle, const Grid &grid, Plan *plan) {
    for (uint32_t i = 0; i < bundle.runner_up_schedule_count; i++) {
        const tuccl_runner_up_schedule_record &own = bundle.runner_up_schedules[i];
        Rule rule = {};
        if (own.ranks == grid.ranks() && own.nodes == grid.nodes &&
            own.ranks_per_node == grid.ranks_per_node() &&
            make_rule(own.entry, bundle.programs, own.operation, grid, &rule) &&
            keep_within(plan->bounds, bundle.programs, &rule))
            plan->decision.add_runner_up(own.operation, rule);
    }
}

// Takes the rules of a table, within the plan's bounds, and its programs. If the process will make
// choices, programs without rules suffice. Returns the fault, empty on success.
std::string take_rules(const tuccl_bundle &bundle, const Grid &grid, Plan *plan) {
    const tuccl_shape_record *shape =
        tuccl_bundle_shape(&bundle, grid.ranks(), grid.nodes, grid.ranks_per_node());
    if ((shape == nullptr && !plan->chooses && !plan->table->learns) || bundle.programs == nullptr)
        return {};
    char why[200];
    if (!tuccl_programs_check(bundle.programs, bundle.program_bytes, why, sizeof why))
        return std::string("its TUCCL_BUNDLE has damaged programs: ") + why;
    for (uint32_t operation = 0; shape != nullptr && operation < kOperations; operation++) {
        const tuccl_range_record range = shape->of_operation[operation];
        for (uint32_t i = range.first; i < range.first + range.count; i++) {
            Rule rule = {};
            if (!make_rule(bundle.entries[i], bundle.programs, operation, grid, &rule))
                continue;
            if (keep_within(plan->bounds, bundle.programs, &rule))
                plan->decision.add(operation, rule);
            else
                plan->rules_of_many_lanes++;
        }
    }
    if (plan->table->learns)
        take_runners_up(bundle, grid, plan);
    if (plan->decision.rule_count() > 0 || plan->decision.has_runners_up() ||
        (plan->chooses && most_lanes(bundle.programs, grid) > 0))
        plan->programs = bundle.programs;
    return {};
}

} // namespace

uint64_t Table::mark() const {
    const std::string text = (wanted ? "wanted " : "") + std::string(chooses ? "chooses " : "") +
                             (check_ms > 0 ? "checks " + std::to_string(check_ms) + " " : "") +
                             (guards ? "guards " : "") + (learns ? "learns " : "") + fault;
    return uint64_t{sum} << 32 |
           tuccl_crc32(0, reinterpret_cast<const unsigned char *>(text.data()), text.size());
}

bool Table::may_serve(uint32_t ranks) const {
    for (uint32_t i = 0; bundle != nullptr && i < bundle->setting_count; i++)
        if (bundle->settings[i].ranks == ranks)
            return true;
    if (bundle == nullptr || (bundle->programs == nullptr && !has_trials()))
        return false;
    if (learns)
        return true;
    for (uint32_t nodes = 1; nodes <= ranks; nodes++)
        if (chooses || tuccl_bundle_shape(bundle.get(), ranks, nodes, 0) != nullptr ||
            (ranks % nodes == 0 &&
             tuccl_bundle_shape(bundle.get(), ranks, nodes, ranks / nodes) != nullptr))
            return true;
    return false;
}

bool Table::may_span_hosts() const {
    return bundle != nullptr &&
           (learns || has_rules_across_hosts(*bundle, gpus_here, has_trials()) ||
            has_settings_across_hosts(*bundle, gpus_here) ||
            (chooses && has_program_across_hosts(*bundle, gpus_here)));
}

std::shared_ptr<const Table> read_table() {
    auto table = std::make_shared<Table>();
    const char *path = setting("TUCCL_BUNDLE");
    if (path == nullptr)
        return table;
    table->wanted = true;
    table->chooses = process_chooses();
    table->source = path;
    read_bundle(path, table.get());
    read_check(table.get());
    read_guard(table.get());
    if (table->fault.empty() && p2p_is_forbidden())
        table->fault = "NCCL_P2P_DISABLE or NCCL_P2P_LEVEL forbids it to reach other devices";
    return table;
}

Plan Plan::of(std::shared_ptr<const Table> table) {
    Plan plan;
    plan.fault = table->fault;
    plan.chooses = table->chooses;
    plan.table = std::move(table);
    return plan;
}

bool make_rule(const tuccl_entry_record &entry, const void *programs, uint32_t operation,
               const Grid &grid, Rule *rule) {
    tuccl_program program;
    if (entry.schedule_nthreads > kMostThreads ||
        !tuccl_programs_at(programs, entry.schedule, &program) || !is_for(program, grid) ||
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
    rule->in_windows = (entry.flags & TUCCL_ENTRY_IN_WINDOWS) != 0;
    return true;
}

bool keep_within(const ScheduleBounds &bounds, const void *programs, Rule *rule) {
    rule->nchannels = std::min(rule->nchannels, bounds.blocks);
    tuccl_program program;
    return !tuccl_programs_at(programs, rule->program, &program) ||
           program.header->lanes <= bounds.lanes;
}

Plan make_plan(const std::shared_ptr<const Table> &table, const Grid &grid,
               const ScheduleBounds &bounds) {
    Plan plan = Plan::of(table);
    plan.bounds = bounds;
    if (!plan.fault.empty() || table->bundle == nullptr)
        return plan;
    plan.fault = take_rules(*table->bundle, grid, &plan);
    if (plan.programs == nullptr)
        return plan;
    plan.staging = plan.chooses ? most_staging(grid.ranks_per_node())
                                : staging_need(plan.decision, plan.programs, grid);
    if (grid.nodes == 1)
        return plan;
    plan.network = network_need(plan.decision, plan.programs);
    plan.most_lanes = plan.chooses
                          ? std::min<uint32_t>(bounds.lanes, most_lanes(plan.programs, grid))
                          : std::max(plan.network.lanes, plan.network.round_lanes);
    plan.scratch_bytes =
        plan.chooses ? kMostScratchBytes : scratch_need(plan.decision, plan.programs);
    return plan;
}

} // namespace tuccl
