#include "communicator_settings.h"

#include "real_nccl.h"
#include "singleton.h"

extern "C" {
#include "bundle.h"
}

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

namespace tuccl {

namespace {

constexpr int kUndefined = INT_MIN;
constexpr unsigned kFirstVersion = 21700; // In which a configuration has more than `blocking`.
constexpr unsigned kTrafficClassVersion = 22500;

// NCCL's MAXCHANNELS (src/include/device.h), the maxCTAs of a configuration that says none.
int most_channels(int nccl_version) {
    return nccl_version < 22500 ? 32 : 64;
}

struct Field {
    const char *variable;
    int NcclConfigStart::*member;
    unsigned since; // Version of NCCL.
    int least;
    int most;
};

// As NCCL's envConfigOverride (src/init.cc) reads variables into fields. NCCL ignores or bounds a
// variable that is too small or too large; a field it refuses (parseCommConfig), or it takes a
// cluster that no kernel can have.
constexpr Field kFields[] = {
    {"NCCL_MIN_CTAS", &NcclConfigStart::min_blocks, kFirstVersion, 1, INT_MAX},
    {"NCCL_MAX_CTAS", &NcclConfigStart::max_blocks, kFirstVersion, 1, INT_MAX},
    {"NCCL_CGA_CLUSTER_SIZE", &NcclConfigStart::cluster_size, kFirstVersion, 0, 8},
    {"NCCL_COLLNET_ENABLE", &NcclConfigStart::collnet, 22700, 0, 1},
    {"NCCL_NVLS_NCHANNELS", &NcclConfigStart::nvls_blocks, 22700, 1, INT_MAX},
    {"NCCL_NCHANNELS_PER_NET_PEER", &NcclConfigStart::channels_per_net_peer, 22800, 1, 64},
};

const Field *field_of(const std::string &variable) {
    const auto *found =
        std::find_if(std::begin(kFields), std::end(kFields),
                     [&variable](const Field &field) { return variable == field.variable; });
    return found != std::end(kFields) ? found : nullptr;
}

// Variables that bound a communicator's channels together: a job that sets one of them sets all.
constexpr const char *kChannels[] = {"NCCL_MIN_CTAS",      "NCCL_MAX_CTAS",   "NCCL_MIN_NCHANNELS",
                                     "NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS"};

// What stands for the same as a variable, itself among it.
std::vector<std::string> alike(const std::string &variable) {
    if (std::find(std::begin(kChannels), std::end(kChannels), variable) != std::end(kChannels))
        return {std::begin(kChannels), std::end(kChannels)};
    return {variable};
}

std::string text_of(const tuccl_bundle &bundle, const tuccl_text_record &text) {
    return {bundle.text + text.offset, text.bytes};
}

// The value that every process had while the table was measured; empty if none is known.
std::string measured_value(const tuccl_bundle &bundle, const std::string &variable) {
    for (uint32_t i = 0; i < bundle.variable_count; i++)
        if (text_of(bundle, bundle.variables[i].name) == variable)
            return text_of(bundle, bundle.variables[i].value);
    return {};
}

NcclConfigStart initializer() {
    NcclConfigStart start = {};
    start.size = sizeof start;
    start.magic = kNcclConfigMagic;
    start.version = kFirstVersion;
    for (int NcclConfigStart::*member :
         {&NcclConfigStart::blocking, &NcclConfigStart::cluster_size, &NcclConfigStart::min_blocks,
          &NcclConfigStart::max_blocks, &NcclConfigStart::split_share,
          &NcclConfigStart::traffic_class, &NcclConfigStart::collnet,
          &NcclConfigStart::block_policy, &NcclConfigStart::shrink_share,
          &NcclConfigStart::nvls_blocks, &NcclConfigStart::channels_per_net_peer,
          &NcclConfigStart::nvlink_centric})
        start.*member = kUndefined;
    return start;
}

// NCCL keeps the pointer to a communicator's name, and hands it on to what is split from it.
const char *kept(const char *name) {
    struct Names {
        std::mutex mutex;
        std::set<std::string> names;
    };
    if (name == nullptr)
        return nullptr;
    Names &all = singleton<Names>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    return all.names.insert(name).first->c_str();
}

int nccl_version() {
    int version = 0;
    return real_nccl().GetVersion(&version) == kNcclSuccess ? version : 0;
}

} // namespace

std::vector<Setting> settings_of(const Table &table, const Grid &grid) {
    std::vector<Setting> found;
    if (table.bundle == nullptr)
        return found;
    const tuccl_bundle &bundle = *table.bundle;
    for (uint32_t i = 0; i < bundle.setting_count; i++) {
        const tuccl_setting_record &own = bundle.settings[i];
        if (own.ranks == grid.ranks() && own.nodes == grid.nodes &&
            own.ranks_per_node == grid.ranks_per_node())
            found.push_back({text_of(bundle, own.pair.name), text_of(bundle, own.pair.value)});
    }
    return found;
}

std::string describe(const std::vector<Setting> &settings) {
    std::string text;
    for (const Setting &setting : settings)
        text += (text.empty() ? "" : " ") + setting.variable + "=" + setting.value;
    return text;
}

// A structure of a release before a field ends before it, or has padding in its place.
OwnedConfig::OwnedConfig(const ncclConfig *given) : bytes_(sizeof(NcclConfigStart)) {
    const NcclConfigStart own = initializer();
    std::memcpy(bytes_.data(), &own, sizeof own);
    size_t size = 0;
    unsigned magic = 0;
    if (given != nullptr) {
        const auto *bytes = reinterpret_cast<const unsigned char *>(given);
        std::memcpy(&size, bytes, sizeof size);
        if (size >= offsetof(NcclConfigStart, blocking))
            std::memcpy(&magic, bytes + offsetof(NcclConfigStart, magic), sizeof magic);
    }
    if (magic != kNcclConfigMagic)
        return; // NCCL refuses what the job gives.
    bytes_.resize(std::max(bytes_.size(), size));
    std::memcpy(bytes_.data(), given, size);
    NcclConfigStart &config = *start();
    config.size = bytes_.size();
    if (config.version < kFirstVersion)
        config.cluster_size = kUndefined;
    if (config.version < kTrafficClassVersion)
        config.traffic_class = kUndefined;
    config.net_name = kept(config.net_name);
    config.comm_name = kept(config.comm_name);
}

bool OwnedConfig::blocks() const {
    return start()->blocking != 0;
}

bool OwnedConfig::says(const std::string &variable) const {
    const NcclConfigStart *config = start();
    const std::vector<std::string> names = alike(variable);
    return std::any_of(names.begin(), names.end(), [config](const std::string &name) {
        const Field *field = field_of(name);
        return field != nullptr && config->version >= field->since &&
               config->*(field->member) != kUndefined;
    });
}

bool OwnedConfig::set(const Setting &setting, int nccl_version) {
    const Field *field = field_of(setting.variable);
    if (field == nullptr || nccl_version < static_cast<int>(field->since))
        return false;
    char *end = nullptr;
    const long value = std::strtol(setting.value.c_str(), &end, 0);
    if (*end != '\0' || value < field->least || value > field->most)
        return false;
    start()->*(field->member) = static_cast<int>(value);
    // NCCL compares both before it puts its default for one that is undefined, the least of all.
    if (start()->min_blocks != kUndefined && start()->max_blocks == kUndefined)
        start()->max_blocks = std::max(start()->min_blocks, most_channels(nccl_version));
    // NCCL ignores fields that are younger than the structure says to be.
    start()->version = std::max(start()->version, field->since);
    return start()->min_blocks <= start()->max_blocks;
}

std::string said_by_job(const Table &table, const OwnedConfig &config) {
    if (table.bundle == nullptr)
        return {};
    const tuccl_bundle &bundle = *table.bundle;
    for (uint32_t i = 0; i < bundle.setting_count; i++) {
        const std::string variable = text_of(bundle, bundle.settings[i].pair.name);
        if (config.says(variable))
            return "its configuration says " + variable + " itself";
        for (const std::string &name : alike(variable)) {
            const char *set = std::getenv(name.c_str());
            if (set != nullptr && set[0] != '\0' && measured_value(bundle, name) != set)
                return "the environment has " + name + "=" + set;
        }
    }
    return {};
}

bool are_in_environment(const std::vector<Setting> &settings) {
    return std::all_of(settings.begin(), settings.end(), [](const Setting &setting) {
        const char *set = std::getenv(setting.variable.c_str());
        return set != nullptr && setting.value == set;
    });
}

bool nccl_takes(const std::vector<Setting> &settings) {
    OwnedConfig tried(nullptr);
    const int version = nccl_version();
    return real_nccl().CommSplit &&
           std::all_of(settings.begin(), settings.end(),
                       [&](const Setting &setting) { return tried.set(setting, version); });
}

int start_again(ncclComm_t comm, int rank, const std::vector<Setting> &settings,
                const OwnedConfig &config, ncclComm_t *made) {
    OwnedConfig own = config;
    const int version = nccl_version();
    for (const Setting &setting : settings)
        own.set(setting, version);
    return real_nccl().CommSplit(comm, 0, rank, made, own.for_nccl());
}

} // namespace tuccl
