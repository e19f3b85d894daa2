#include "plan.h"

#include "choose.h"
#include "staging_need.h"

extern "C" {
#include "bundle.h"
#include "crc32.h"
#include "machine.h"
}

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <strings.h>

namespace tuccl {

namespace {

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

std::string fault_of(const tuccl_bundle &bundle) {
    char why[200];
    const char *sysfs = setting("TUCCL_SYSFS");
    if (!sum_is_as_demanded(bundle, setting("TUCCL_BUNDLE_CRC")))
        return "its TUCCL_BUNDLE has not the CRC that TUCCL_BUNDLE_CRC demands";
    if (!tuccl_machine_matches(sysfs != nullptr ? sysfs : "/sys", bundle.gpu_models,
                               bundle.gpu_model_count, why, sizeof why))
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
}

} // namespace

uint64_t Table::mark() const {
    const std::string text =
        (wanted ? "wanted " : "") + std::string(chooses ? "chooses " : "") + fault;
    return uint64_t{sum} << 32 |
           tuccl_crc32(0, reinterpret_cast<const unsigned char *>(text.data()), text.size());
}

bool Table::may_span_hosts() const {
    return bundle != nullptr &&
           (has_rules_across_nodes(*bundle) || (chooses && has_program_across_nodes(*bundle)));
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
    if (table->fault.empty() && p2p_is_forbidden())
        table->fault = "NCCL_P2P_DISABLE or NCCL_P2P_LEVEL forbids it to reach other devices";
    return table;
}

Plan begin_plan(const Table &table) {
    Plan plan;
    plan.wanted = table.wanted;
    plan.chooses = table.chooses;
    plan.sum = table.sum;
    plan.source = table.source;
    plan.fault = table.fault;
    return plan;
}

Plan make_plan(const Table &table, const Grid &grid, const ScheduleBounds &bounds) {
    Plan plan = begin_plan(table);
    plan.bounds = bounds;
    if (!table.fault.empty() || table.bundle == nullptr)
        return plan;
    plan.fault = take_bundle_rules(table.bundle, grid, table.chooses, &plan);
    if (!plan.has_something())
        return plan;
    plan.staging = table.chooses ? most_staging(grid.ranks_per_node())
                                 : staging_need(plan.decision, plan.bundle->programs, grid);
    if (grid.nodes == 1)
        return plan;
    plan.network = network_need(plan.decision, plan.bundle->programs);
    plan.most_lanes =
        table.chooses ? std::min<uint32_t>(bounds.lanes, most_lanes(plan.bundle->programs, grid))
                      : plan.network.lanes;
    plan.scratch_bytes =
        table.chooses ? kMostScratchBytes : scratch_need(plan.decision, plan.bundle->programs);
    return plan;
}

} // namespace tuccl
