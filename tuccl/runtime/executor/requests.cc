#include "requests.h"

#include "singleton.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

namespace tuccl {

namespace {

std::mutex offering;
size_t offers = 0; // Under the mutex.
std::atomic<tuccl_request *> offered{nullptr};
// More than a rail has communicators: nobody believes such a count.
constexpr uint32_t kUncertain = 1 << 16;
std::atomic<bool> was_called{false};

struct Requests {
    std::mutex mutex;
    std::deque<tuccl_request> all;
};

tuccl_request *new_request(uint64_t word, uint32_t nodes, bool learns = false) {
    Requests &known = singleton<Requests>();
    const std::lock_guard<std::mutex> lock(known.mutex);
    known.all.push_back({word, nodes, 0, nullptr, learns ? 1U : 0U, 0});
    return &known.all.back();
}

void set_word(tuccl_request *request, uint64_t word) {
    __atomic_store_n(&request->word, word, __ATOMIC_SEQ_CST);
}

} // namespace

void note_call() {
    was_called.store(true);
}

tuccl_request *new_rail_request(uint32_t nodes) {
    return new_request(TUCCL_REQUEST_NCCL, nodes);
}

tuccl_request *new_table_request(bool learns) {
    return new_request(TUCCL_REQUEST_TABLE, 0, learns);
}

Offer::Offer(tuccl_request *request) : request_(request) {
    const std::lock_guard<std::mutex> lock(offering);
    if (offers++ == 0) {
        offered.store(request);
        return;
    }
    for (tuccl_request *each : {offered.exchange(nullptr), request})
        if (each != nullptr)
            __atomic_fetch_add(&each->takers, kUncertain, __ATOMIC_SEQ_CST);
}

void Offer::withdraw() {
    const std::lock_guard<std::mutex> lock(offering);
    if (is_withdrawn_)
        return;
    is_withdrawn_ = true;
    offers--;
    if (offered.load() == request_)
        offered.store(nullptr);
}

bool is_obeyed(const tuccl_request &request, uint32_t communicators) {
    return __atomic_load_n(&request.takers, __ATOMIC_SEQ_CST) == communicators;
}

// They are kept for plugins, which may read them as long as the process lives.
void leave_out(tuccl_request *request, std::vector<tuccl_left_out> ranges) {
    struct Kept {
        std::mutex mutex;
        std::deque<std::vector<tuccl_left_out>> all;
    };
    if (request == nullptr)
        return;
    ranges.push_back({0, 0, TUCCL_NO_OPERATION, TUCCL_REQUEST_NCCL});
    Kept &kept = singleton<Kept>();
    const std::lock_guard<std::mutex> lock(kept.mutex);
    kept.all.push_back(std::move(ranges));
    __atomic_store_n(&request->left_out, kept.all.back().data(), __ATOMIC_RELEASE);
}

RailRequested::RailRequested(tuccl_request *request, const tuccl_phase &phase)
    : request_(phase.rail_algorithm != 0 ? request : nullptr) {
    if (request_ != nullptr)
        set_word(request_, (uint64_t{phase.rail_algorithm} - 1) |
                               uint64_t{phase.rail_protocol} << 8 |
                               uint64_t{phase.rail_nchannels} << 16);
}

RailRequested::~RailRequested() {
    if (request_ != nullptr)
        set_word(request_, TUCCL_REQUEST_NCCL);
}

uint32_t refused_calls(const tuccl_request *request) {
    return request != nullptr ? __atomic_load_n(&request->refused, __ATOMIC_RELAXED) : 0;
}

ChoiceRequested::ChoiceRequested(tuccl_request *request, uint64_t word) : request_(request) {
    if (request_ != nullptr)
        set_word(request_, word);
}

ChoiceRequested::~ChoiceRequested() {
    if (request_ != nullptr)
        set_word(request_, TUCCL_REQUEST_TABLE);
}

} // namespace tuccl

extern "C" __attribute__((visibility("default"))) bool tuccl_executor_is_called() {
    return tuccl::was_called.load();
}

extern "C" __attribute__((visibility("default"))) tuccl_request *tuccl_executor_request() {
    return tuccl::offered.load();
}
