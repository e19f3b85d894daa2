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

void read_rules(const char *path, Plan *plan) {
    char why[200];
    size_t bytes = 0;
    const unsigned char *data = tuccl_read_file(path, &bytes, why, sizeof why);
    if (data == nullptr) {
        plan->fault = std::string("its TUCCL_EXECUTOR_RULES ") + why;
        return;
    }
    const std::string text(reinterpret_cast<const char *>(data), bytes);
    munmap(const_cast<unsigned char *>(data), bytes);
    plan->sum = tuccl_crc32(0, reinterpret_cast<const unsigned char *>(text.data()), text.size());
    const std::string wrong = parse_rules(text, &plan->decision);
    if (!wrong.empty())
        plan->fault = "its TUCCL_EXECUTOR_RULES: " + wrong;
}

bool sum_is_as_demanded(const tuccl_bundle &bundle, const char *demanded) {
    return demanded == nullptr ||
           (std::strlen(demanded) == 8 && std::strspn(demanded, "0123456789abcdefABCDEF") == 8 &&
            std::strtoul(demanded, nullptr, 16) == bundle.crc);
}

void use_bundle(const tuccl_bundle &bundle, uint32_t ranks, Plan *plan) {
    char why[200];
    size_t gpus = 0;
    const char *sysfs = setting("TUCCL_SYSFS");
    if (!sum_is_as_demanded(bundle, setting("TUCCL_BUNDLE_CRC")))
        plan->fault = "its TUCCL_BUNDLE has not the CRC that TUCCL_BUNDLE_CRC demands";
    else if (!tuccl_machine_matches(sysfs != nullptr ? sysfs : "/sys", bundle.gpu_models,
                                    bundle.gpu_model_count, &gpus, why, sizeof why))
        plan->fault = std::string("its TUCCL_BUNDLE ") + why;
    else
        plan->fault = take_bundle_rules(bundle, ranks, plan);
}

void read_bundle(const char *path, uint32_t ranks, Plan *plan) {
    char why[200];
    tuccl_bundle bundle;
    if (tuccl_bundle_load(path, &bundle, why, sizeof why) != TUCCL_BUNDLE_GOOD) {
        plan->fault = std::string("its TUCCL_BUNDLE ") + why;
        return;
    }
    plan->sum = bundle.crc;
    use_bundle(bundle, ranks, plan);
    tuccl_bundle_free(&bundle);
}

} // namespace

Plan read_plan(uint32_t ranks) {
    Plan plan;
    const char *rules = setting("TUCCL_EXECUTOR_RULES");
    const char *path = rules != nullptr ? rules : setting("TUCCL_BUNDLE");
    if (path == nullptr)
        return plan;
    plan.wanted = true;
    plan.source = path;
    if (rules != nullptr)
        read_rules(rules, &plan);
    else
        read_bundle(path, ranks, &plan);
    plan.staging =
        process_chooses()
            ? most_staging(ranks)
            : staging_need(plan.decision, plan.programs.empty() ? nullptr : plan.programs.data(),
                           ranks);
    if (plan.fault.empty() && p2p_is_forbidden())
        plan.fault = "NCCL_P2P_DISABLE or NCCL_P2P_LEVEL forbids it to reach other devices";
    return plan;
}

} // namespace tuccl
