#include "origin.h"

#include "executor.h"
#include "free_sums.h"
#include "log.h"
#include "nccl_config.h"
#include "real_nccl.h"
#include "roll_place.h"
#include "roll_table.h"
#include "secrets.h"
#include "singleton.h"

extern "C" {
#include "bundle.h"
}

#include <mutex>
#include <string>
#include <unordered_map>

namespace tuccl {

namespace {

// A communicator and its children.
struct Family {
    Origin origin; // Of the communicator, as far as children need it.
    uint64_t children;
};

struct Families {
    std::mutex mutex;
    std::unordered_map<ncclComm_t, Family> by_comm;
};

template <typename Number> std::string bytes_of(const Number &number) {
    return {reinterpret_cast<const char *>(&number), sizeof number};
}

// `config` may be NULL.
void take_config(const ncclConfig *config, Origin *origin) {
    origin->config = std::make_shared<const OwnedConfig>(config);
    origin->shares = config != nullptr && shares_resources(config);
    origin->most_blocks = config != nullptr ? most_blocks(config) : kAnyBlocks;
}

void enter(Origin *origin, int rank) {
    origin->roll = std::make_shared<RollCall>(origin->secret, static_cast<uint32_t>(rank),
                                              origin->table->mark(), origin->reach, origin->place);
}

} // namespace

// Ranks number a communicator's children alike as long as NCCL creates all of them. After a failure
// two ranks could take different children for the same one: this rank takes part in no more of
// them.
class Birth {
  public:
    explicit Birth(ncclComm_t parent) : parent_(parent) {
    }
    ~Birth() {
        if (accepted_)
            return;
        Families &all = singleton<Families>();
        const std::lock_guard<std::mutex> lock(all.mutex);
        const auto found = all.by_comm.find(parent_);
        if (found != all.by_comm.end())
            found->second.origin.is_known = false;
    }
    Birth(const Birth &) = delete;
    Birth &operator=(const Birth &) = delete;

    void accept() {
        accepted_ = true;
    }

  private:
    ncclComm_t parent_;
    bool accepted_ = false;
};

// Returns the process's table; what NCCL runs is told if it keeps sums from moving.
std::shared_ptr<const Table> table_here() {
    note_call();
    std::shared_ptr<const Table> table = read_table();
    keep_sums(table->bundle != nullptr && table->bundle->sums != nullptr);
    return table;
}

// Without a mark the roll is a file of one host, and a communicator of several is NCCL's.
void open_network_roll(ncclUniqueId *id) {
    const std::shared_ptr<const Table> table = table_here();
    if (!table->fault.empty() || !table->may_span_hosts())
        return;
    const std::optional<SocketAddress> address = bootstrap_address(*id);
    if (!address) {
        log_info("a unique id has no place for a roll: communicators by it are served on one host");
        return;
    }
    std::string fault;
    IdSecret secret;
    const uint16_t port = listen_for_rolls(*address, &fault);
    if (port != 0 && !random_bytes(secret.data(), secret.size()))
        fault = "the kernel has no random numbers";
    ncclUniqueId marked = *id;
    if (fault.empty()) {
        mark_id(&marked, port, secret);
        if (!expect_roll(*marked_place(marked)))
            fault = "too many communicators are starting";
    }
    if (fault.empty())
        *id = marked;
    else
        log_warning("no roll at %s, so that communicators are served on one host: %s",
                    address->host().c_str(), fault.c_str());
}

std::vector<Origin> origins_here(size_t ranks) {
    Origin origin;
    origin.table = table_here();
    origin.secret = sha256("TuCCL process" + bytes_of(random_number()) + bytes_of(random_number()));
    origin.reach = Reach::kProcess;
    take_config(nullptr, &origin);
    origin.offer = std::make_shared<Offer>(nullptr);
    std::vector<Origin> origins(ranks, origin);
    for (size_t rank = 0; rank < ranks && ranks <= TUCCL_MAX_RANKS; rank++)
        enter(&origins[rank], static_cast<int>(rank));
    return origins;
}

Origin origin_by_id(const ncclUniqueId &id, int ranks, int rank, const ncclConfig *config) {
    Origin origin;
    take_config(config, &origin);
    origin.table = table_here();
    offer(&origin);
    origin.secret = secret_of_id(id);
    origin.place = marked_place(id);
    origin.reach = origin.place ? Reach::kNetwork : Reach::kHost;
    const auto most = origin.place ? static_cast<int>(kMostNetworkRanks) : TUCCL_MAX_RANKS;
    // With others no rank needs to know who is there.
    if (ranks >= 2 && ranks <= most && rank >= 0 && rank < ranks)
        enter(&origin, rank);
    return origin;
}

// Ranks split a communicator in the same order; ranks of one color form one child. Their numbers in
// the child are not known yet, so they use those in the parent.
// The child of a parent whose roll was on the network has one of its own there. The parent's would
// not do: a rank where a birth failed leaves further children to NCCL, and the others must miss it.
Origin origin_from(ncclComm_t parent, int color, const ncclConfig *config) {
    Origin origin;
    {
        Families &all = singleton<Families>();
        const std::lock_guard<std::mutex> lock(all.mutex);
        const auto found = all.by_comm.find(parent);
        if (found == all.by_comm.end() || !found->second.origin.is_known)
            return unknown_origin();
        origin = found->second.origin;
        const uint64_t child = ++found->second.children;
        origin.secret = hmac_sha256(origin.secret, "child" + bytes_of(child) + bytes_of(color));
    }
    if (config != nullptr)
        take_config(config, &origin);
    origin.has_settings = false;
    origin.table = table_here();
    offer(&origin);
    origin.birth = std::make_shared<Birth>(parent);
    int rank = -1;
    if (color < 0 || !real_nccl().CommUserRank ||
        real_nccl().CommUserRank(parent, &rank) != kNcclSuccess || rank < 0)
        return origin;
    enter(&origin, rank);
    return origin;
}

Origin unknown_origin() {
    Origin origin;
    origin.is_known = false;
    origin.table = table_here();
    origin.offer = std::make_shared<Offer>(nullptr);
    return origin;
}

void offer(Origin *origin) {
    const Table &table = *origin->table;
    origin->offer =
        std::make_shared<Offer>(table.has_trials() ? new_table_request(table.learns) : nullptr);
}

std::optional<OwnedConfig> without_settings(ncclComm_t parent, const ncclConfig *given) {
    if (given != nullptr)
        return std::nullopt;
    Families &all = singleton<Families>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.by_comm.find(parent);
    if (found == all.by_comm.end() || !found->second.origin.has_settings)
        return std::nullopt;
    return *found->second.origin.config;
}

void accept(const Origin &origin) {
    if (origin.birth != nullptr)
        origin.birth->accept();
}

void withdraw_offer(const Origin &origin) {
    origin.offer->withdraw();
}

void remember_origin(ncclComm_t comm, const Origin &origin) {
    Origin kept = origin;
    kept.table = nullptr;
    kept.roll = nullptr;
    kept.birth = nullptr;
    kept.offer = nullptr;
    Families &all = singleton<Families>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.by_comm[comm] = {kept, 0};
}

void forget_origin(ncclComm_t comm) {
    Families &all = singleton<Families>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.by_comm.erase(comm);
}

} // namespace tuccl
