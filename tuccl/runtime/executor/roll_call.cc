#include "roll_call.h"

#include "secrets.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

namespace tuccl {

namespace {

constexpr auto kPause = std::chrono::microseconds(200);

// Any user of the host can list file names, so a name must reveal nothing.
std::string file_name(const Digest &secret) {
    static const char kDigits[] = "0123456789abcdef";
    const Digest digest = hmac_sha256(secret, "name of the roll's file");
    std::string name;
    for (size_t i = 0; i < digest.size() / 2; i++) {
        name += kDigits[digest[i] >> 4];
        name += kDigits[digest[i] & 15];
    }
    return name;
}

uint64_t tag_of(const Digest &secret) {
    const Digest digest = hmac_sha256(secret, "tag of the roll's entries");
    uint64_t tag = 0;
    std::memcpy(&tag, digest.data(), sizeof tag);
    return tag | 1; // Never that of an empty slot.
}

bool marks_agree(const RollEntries &entries) {
    return std::all_of(entries.begin(), entries.end(), [&](const auto &entry) {
        return entry.second.mark == entries.begin()->second.mark;
    });
}

} // namespace

// The ranks in this process.
class RollCall::Here {
  public:
    static std::shared_ptr<Here> of(const Digest &secret);

    void enter(uint32_t rank, const RollEntry &entry) {
        const std::lock_guard<std::mutex> lock(mutex_);
        places_[rank] = {entry, false, false};
    }
    void take_back(uint32_t rank, const RollEntry &entry) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (find(rank, entry) != nullptr)
            places_.erase(rank);
    }
    void arrive(uint32_t rank, const RollEntry &entry) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (Place *place = find(rank, entry))
            place->has_arrived = true;
    }
    void fail(uint32_t rank, const RollEntry &entry) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (Place *place = find(rank, entry))
            place->has_failed = true;
    }
    bool all_arrived() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return std::all_of(places_.begin(), places_.end(), [](const auto &place) {
            return place.second.has_arrived || place.second.has_failed;
        });
    }
    bool has_left(uint32_t rank, const RollEntry &entry) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const Place *place = find(rank, entry);
        return place == nullptr || place->has_failed;
    }
    RollEntries entries() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        RollEntries entries;
        for (const auto &[rank, place] : places_)
            entries[rank] = place.entry;
        return entries;
    }

  private:
    struct Place {
        RollEntry entry;
        bool has_arrived;
        bool has_failed;
    };

    // NULL where another start of this rank has taken its place.
    Place *find(uint32_t rank, const RollEntry &entry) {
        const auto found = places_.find(rank);
        return found != places_.end() && found->second.entry.attempt == entry.attempt
                   ? &found->second
                   : nullptr;
    }

    mutable std::mutex mutex_;
    std::map<uint32_t, Place> places_;
};

std::shared_ptr<RollCall::Here> RollCall::Here::of(const Digest &secret) {
    static std::mutex *const mutex = new std::mutex;
    static auto *const all = new std::map<Digest, std::weak_ptr<Here>>;
    const std::lock_guard<std::mutex> lock(*mutex);
    for (auto entry = all->begin(); entry != all->end();)
        entry = entry->second.expired() ? all->erase(entry) : std::next(entry);
    std::shared_ptr<Here> here = (*all)[secret].lock();
    if (here == nullptr) {
        here = std::make_shared<Here>();
        (*all)[secret] = here;
    }
    return here;
}

RollCall::RollCall(const Digest &secret, uint32_t rank, uint64_t mark, Reach reach,
                   const std::optional<RollPlace> &place)
    : rank_(rank), mine_{random_number(), mark}, here_(Here::of(secret)) {
    here_->enter(rank, mine_);
    if (reach == Reach::kProcess)
        return;
    if (reach == Reach::kNetwork) {
        network_.emplace(*place, roll_name(secret));
        fault_ = network_->enter(rank, mark, mine_.attempt);
        return;
    }
    file_.emplace(file_name(secret), tag_of(secret));
    fault_ = file_->enter(rank, mine_);
}

RollCall::~RollCall() {
    if (!was_read_)
        take_back();
}

void RollCall::take_back() {
    here_->take_back(rank_, mine_);
    if (file_)
        file_->take_back();
    if (network_)
        network_->leave();
}

void RollCall::fail() {
    here_->fail(rank_, mine_);
    if (file_)
        file_->end(RollFile::End::kFailure);
    if (network_)
        network_->fail();
}

Roll RollCall::read(uint32_t ranks) {
    was_read_ = true;
    seen_ = here_->entries();
    seen_here_ = seen_.size() == ranks;
    if (network_ && !seen_here_)
        return read_network(ranks);
    if (!seen_here_ && file_ && file_->is_open()) {
        seen_ = file_->read();
        const auto found = seen_.find(rank_);
        if (found == seen_.end() || found->second.attempt != mine_.attempt) {
            take_back();
            seen_.clear();
            fault_ = "somebody damaged this job's file in /dev/shm";
        }
    }
    if (file_)
        file_->remove_name();
    const Roll roll = {static_cast<uint32_t>(seen_.size()), marks_agree(seen_),
                       seen_here_ ? std::string() : fault_};
    if (roll.present != ranks)
        seen_.clear();
    return roll;
}

Roll RollCall::read_network(uint32_t ranks) {
    seen_.clear();
    if (!fault_.empty())
        return {0, false, fault_};
    const NetworkRoll::Answer answer = network_->ask(ranks);
    if (!answer.is_complete)
        network_->leave();
    return {answer.present, answer.marks_agree, answer.fault};
}

bool RollCall::somebody_left() const {
    if (network_ && !seen_here_)
        return network_->somebody_left();
    return std::any_of(seen_.begin(), seen_.end(), [&](const auto &entry) {
        return seen_here_ ? here_->has_left(entry.first, entry.second)
                          : file_->has_left(entry.first, entry.second);
    });
}

void RollCall::arrive() {
    here_->arrive(rank_, mine_);
}

void RollCall::wait_for_those_here(const std::function<bool()> &gives_up) {
    arrive();
    while (!here_->all_arrived() && !gives_up())
        std::this_thread::sleep_for(kPause);
}

} // namespace tuccl
