#include "roll_call.h"

#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <mutex>
#include <random>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <unordered_map>

namespace tuccl {

namespace {

constexpr auto kPause = std::chrono::microseconds(200);

using Count = std::atomic<uint32_t>;
static_assert(Count::is_always_lock_free, "processes share it");

// What a communicator and those made from it are called.
struct Family {
    bool is_known;
    uint64_t name;
    uint64_t children;
};

struct Families {
    std::mutex mutex;
    std::unordered_map<ncclComm_t, Family> by_comm;
};

Families &families() {
    static Families *const only = new Families;
    return *only;
}

// FNV-1a.
uint64_t mixed(uint64_t hash, const void *data, size_t bytes) {
    const auto *first = static_cast<const unsigned char *>(data);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ first[i]) * 0x100000001b3U;
    return hash;
}

void *map_shared(const std::string &path, size_t bytes) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0)
        return nullptr;
    // Of zeros, where it is new.
    void *memory = ftruncate(file, static_cast<off_t>(bytes)) == 0
                       ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                       : MAP_FAILED;
    (void)close(file);
    return memory != MAP_FAILED ? memory : nullptr;
}

} // namespace

// A communicator's ranks on this host, in memory that their processes share.
struct RollCall::Host {
    Count present;
    std::atomic<uint64_t> marks; // Added up.
};

// Those in this process.
struct RollCall::Here {
    Count present{0};
    Count arrived{0};
};

std::shared_ptr<RollCall::Here> RollCall::here_of(uint64_t name) {
    static std::mutex *const mutex = new std::mutex;
    static auto *const all = new std::unordered_map<uint64_t, std::weak_ptr<Here>>;
    const std::lock_guard<std::mutex> lock(*mutex);
    for (auto entry = all->begin(); entry != all->end();)
        entry = entry->second.expired() ? all->erase(entry) : std::next(entry);
    std::shared_ptr<Here> here = (*all)[name].lock();
    if (here == nullptr) {
        here = std::make_shared<Here>();
        (*all)[name] = here;
    }
    return here;
}

RollCall::RollCall(uint64_t name, uint64_t mark) : name_(name), mark_(mark), here_(here_of(name)) {
    char path[64];
    std::snprintf(path, sizeof path, "/dev/shm/tuccl-roll-%016llx",
                  static_cast<unsigned long long>(name));
    path_ = path;
    host_ = static_cast<Host *>(map_shared(path_, sizeof(Host)));
    if (host_ != nullptr) {
        host_->marks.fetch_add(mark);
        host_->present.fetch_add(1);
    }
    here_->present.fetch_add(1);
}

void RollCall::arrive() {
    if (!arrived_)
        here_->arrived.fetch_add(1);
    arrived_ = true;
}

void RollCall::wait_for_those_here(const std::atomic<bool> *cancelled) {
    arrive();
    while (here_->arrived.load() < here_->present.load() &&
           (cancelled == nullptr || !cancelled->load()))
        std::this_thread::sleep_for(kPause);
}

// Nobody opens it any more when the first rank is through; those who have it open keep it.
RollCall::~RollCall() {
    if (host_ == nullptr)
        return;
    (void)unlink(path_.c_str());
    (void)munmap(static_cast<void *>(host_), sizeof(Host));
}

// On a host without such memory only this process's ranks are seen.
uint32_t RollCall::present() const {
    return host_ != nullptr ? host_->present.load() : here_->present.load();
}

bool RollCall::marks_agree() const {
    return host_ != nullptr && host_->marks.load() == host_->present.load() * mark_;
}

std::vector<Origin> origins_here(size_t ranks) {
    std::random_device source;
    const uint64_t name = uint64_t{source()} << 32 | source();
    const auto table = read_table();
    std::vector<Origin> origins;
    for (size_t rank = 0; rank < ranks; rank++)
        origins.push_back({true, table, std::make_shared<RollCall>(name, table->mark())});
    return origins;
}

Origin origin_by_id(const ncclUniqueId &id) {
    const uint64_t name = mixed(0xcbf29ce484222325U, id.internal, sizeof id.internal);
    const auto table = read_table();
    return {true, table, std::make_shared<RollCall>(name, table->mark())};
}

// Ranks make communicators from one in the same order; those of a color are one.
Origin origin_from(ncclComm_t parent, int color) {
    uint64_t name = 0;
    {
        Families &all = families();
        const std::lock_guard<std::mutex> lock(all.mutex);
        const auto found = all.by_comm.find(parent);
        if (found == all.by_comm.end() || !found->second.is_known)
            return {false, read_table(), nullptr};
        Family &family = found->second;
        const uint64_t child = ++family.children;
        name = mixed(mixed(family.name, &child, sizeof child), &color, sizeof color);
    }
    const auto table = read_table();
    return {true, table, std::make_shared<RollCall>(name, table->mark())};
}

void remember_origin(ncclComm_t comm, const Origin &origin) {
    Families &all = families();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.by_comm[comm] = {origin.is_known, origin.is_known ? origin.roll->name() : 0, 0};
}

void forget_origin(ncclComm_t comm) {
    Families &all = families();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.by_comm.erase(comm);
}

} // namespace tuccl
