#include "plan.h"

#include "bundle_rules.h"
#include "choose.h"
#include "rules_file.h"
#include "staging_need.h"

extern "C" {
#include "bundle.h"
#include "bundle_file.h"
#include "crc32.h"
#include "machine.h"
}

#include <cstdlib>
#include <cstring>
#include <strings.h>
#include <sys/mman.h>

namespace tuccl {

namespace {

// A line is some 60 bytes.
constexpr size_t kMostRulesBytes = size_t{1} << 20;

// A variable that is set and not empty: `export NAME=` is how people unset one.
const char *setting(const char *name) {
    const char *value = std::getenv(name);
    return value != nullptr && value[0] != '\0' ? value : nullptr;
}

// Who forbids NCCL peer-to-peer copies knows a reason: on some hosts they hang, or damage data.
bool p2p_is_forbidden() {
    const char *disable = setting("NCCL_P2P_DISABLE");
    const char *level = setting("NCCL_P2P_LEVEL");
    return (disable != nullptr && std::strtol(disable, nullptr, 0) == 1) ||
           (level != nullptr && (strcasecmp(level, "LOC") == 0 || std::strcmp(level, "0") == 0));
}

void read_rules(const char *path, Table *table) {
    char why[200];
    size_t bytes = 0;
    const unsigned char *data = tuccl_read_file(path, kMostRulesBytes, &bytes, why, sizeof why);
    if (data == nullptr) {
        table->fault = std::string("its TUCCL_EXECUTOR_RULES ") + why;
        return;
    }
    table->rules.assign(reinterpret_cast<const char *>(data), bytes);
    table->sum = tuccl_crc32(0, data, bytes);
    munmap(const_cast<unsigned char *>(data), bytes);
    Decision parsed;
    const std::string wrong = parse_rules(table->rules, &parsed);
    if (!wrong.empty())
        table->fault = "its TUCCL_EXECUTOR_RULES: " + wrong;
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
    table->bundle = {bundle, [](tuccl_bundle *loaded) {
                         tuccl_bundle_free(loaded);
                         delete loaded;
                     }};
    table->sum = bundle->crc;
    table->fault = fault_of(*bundle);
}

} // namespace

uint64_t Table::mark() const {
    const std::string text = (wanted ? "wanted " : "") + fault;
    return uint64_t{sum} << 32 |
           tuccl_crc32(0, reinterpret_cast<const unsigned char *>(text.data()), text.size());
}

std::shared_ptr<const Table> read_table() {
    auto table = std::make_shared<Table>();
    const char *rules = setting("TUCCL_EXECUTOR_RULES");
    const char *path = rules != nullptr ? rules : setting("TUCCL_BUNDLE");
    if (path == nullptr)
        return table;
    table->wanted = true;
    table->source = path;
    if (rules != nullptr)
        read_rules(rules, table.get());
    else
        read_bundle(path, table.get());
    if (table->fault.empty() && p2p_is_forbidden())
        table->fault = "NCCL_P2P_DISABLE or NCCL_P2P_LEVEL forbids it to reach other devices";
    return table;
}

Plan make_plan(const Table &table, uint32_t ranks) {
    Plan plan;
    plan.wanted = table.wanted;
    plan.sum = table.sum;
    plan.source = table.source;
    plan.fault = table.fault;
    if (!table.fault.empty())
        return plan;
    if (table.bundle != nullptr)
        plan.fault = take_bundle_rules(*table.bundle, ranks, &plan);
    else
        (void)parse_rules(table.rules, &plan.decision); // It is right: read_table looked.
    plan.staging =
        process_chooses()
            ? most_staging(ranks)
            : staging_need(plan.decision, plan.programs.empty() ? nullptr : plan.programs.data(),
                           ranks);
    return plan;
}

} // namespace tuccl
