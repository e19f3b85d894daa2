#include "rail_request.h"

#include "singleton.h"
#include <atomic>
#include <deque>
#include <mutex>

namespace tuccl {

namespace {

std::mutex offering;
std::atomic<tuccl_rail_request *> offered{nullptr};
// More than a rail has communicators: nobody believes such a count.
constexpr uint32_t kUncertain = 1 << 16;

struct Requests {
    std::mutex mutex;
    std::deque<tuccl_rail_request> all;
};

void set_word(tuccl_rail_request *request, uint64_t word) {
    __atomic_store_n(&request->word, word, __ATOMIC_SEQ_CST);
}

} // namespace

tuccl_rail_request *new_rail_request(uint32_t nodes) {
    Requests &known = singleton<Requests>();
    const std::lock_guard<std::mutex> lock(known.mutex);
    known.all.push_back({TUCCL_RAIL_NO_REQUEST, nodes, 0});
    return &known.all.back();
}

int split_with(tuccl_rail_request *request, const std::function<int()> &split) {
    {
        const std::lock_guard<std::mutex> lock(offering);
        tuccl_rail_request *other = nullptr;
        if (!offered.compare_exchange_strong(other, request))
            for (tuccl_rail_request *each : {other, request})
                __atomic_fetch_add(&each->takers, kUncertain, __ATOMIC_SEQ_CST);
    }
    const int result = split();
    tuccl_rail_request *mine = request;
    offered.compare_exchange_strong(mine, nullptr);
    return result;
}

bool is_obeyed(const tuccl_rail_request &request, uint32_t rails) {
    return __atomic_load_n(&request.takers, __ATOMIC_SEQ_CST) == rails;
}

RailRequested::RailRequested(tuccl_rail_request *request, const tuccl_phase &phase)
    : request_(phase.rail_algorithm != 0 ? request : nullptr) {
    if (request_ != nullptr)
        set_word(request_, (uint64_t{phase.rail_algorithm} - 1) |
                               uint64_t{phase.rail_protocol} << 8 |
                               uint64_t{phase.rail_nchannels} << 16);
}

RailRequested::~RailRequested() {
    if (request_ != nullptr)
        set_word(request_, TUCCL_RAIL_NO_REQUEST);
}

} // namespace tuccl

extern "C" __attribute__((visibility("default"))) tuccl_rail_request *
tuccl_executor_rail_request() {
    return tuccl::offered.load();
}
