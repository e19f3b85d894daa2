// What the interposer costs on the host: median over batches of a collective's way from the job's
// call to the device side's launch, and of one that is left to NCCL, both of which do nothing here.
//
//   bench_decision BUNDLE_RANGES
//
// Two patterns: one size again and again on one communicator, and sizes at random on four. The cost
// of the loop is in it.
#include "nccl_call.h"
#include "register.h"

#include "device_exchange.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

extern "C" int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, ncclStream);

// The device side: launches nothing.
const char *tuccl_device_comm_create(tuccl_device_comm **, uint32_t, uint32_t,
                                     const tuccl_staging *, unsigned char *) {
    return nullptr;
}
const char *tuccl_device_comm_connect(tuccl_device_comm *,
                                      const unsigned char (*)[TUCCL_HANDLE_BYTES]) {
    return nullptr;
}
const char *tuccl_device_comm_load_programs(tuccl_device_comm *, const void *, size_t) {
    return nullptr;
}
int tuccl_device_comm_quiesce(tuccl_device_comm *) {
    return 1;
}
void tuccl_device_comm_destroy(tuccl_device_comm *) {
}
int tuccl_device_supports(const tuccl_device_comm *, const tuccl_call *call) {
    return call->nthreads != 0;
}
int tuccl_device_launch(tuccl_device_comm *, const tuccl_call *, void *) {
    return 0;
}
void tuccl_device_abort(tuccl_device_comm *) {
}
int tuccl_device_order(tuccl_device_comm *, void *, void *) {
    return 0;
}
int tuccl_device_remember(tuccl_device_comm *, void *) {
    return 0;
}
int tuccl_device_order_remembered(tuccl_device_comm *, void *) {
    return 0;
}
int tuccl_device_enter(int, tuccl_device_scope *) {
    return 0;
}
void tuccl_device_leave(const tuccl_device_scope *) {
}
tuccl_stream_state tuccl_device_stream(void *) {
    return {1, 0};
}
int tuccl_device_has_nvlink(const tuccl_device_comm *) {
    return 1;
}
void tuccl_device_forgo_nvlink(tuccl_device_comm *) {
}
const char *tuccl_device_prepare_phases(tuccl_device_comm *, size_t, uint32_t) {
    return nullptr;
}
void *tuccl_device_scratch(const tuccl_device_comm *) {
    return nullptr;
}
void *tuccl_device_side_stream(const tuccl_device_comm *, uint32_t) {
    return nullptr;
}
int tuccl_device_mark(tuccl_device_comm *, uint32_t, void *) {
    return 0;
}
int tuccl_device_await(tuccl_device_comm *, uint32_t, void *) {
    return 0;
}
int tuccl_device_sum(tuccl_device_comm *, const void *, void *, size_t, uint32_t, uint8_t, uint8_t,
                     void *) {
    return 0;
}
const char *tuccl_device_load_stages(tuccl_device_comm *, const tuccl_stage_step *, size_t) {
    return nullptr;
}
int tuccl_device_run_stage(tuccl_device_comm *, const tuccl_stage_call *, void *) {
    return 0;
}
uint64_t tuccl_device_free_bytes() {
    return 0;
}
const char *tuccl_exchange_create(tuccl_exchange **, size_t, uint32_t) {
    return nullptr;
}
struct tuccl_exchange_view tuccl_exchange_view(const tuccl_exchange *) {
    return {};
}
int tuccl_exchange_write(tuccl_exchange *, const void *) {
    return 0;
}
int tuccl_exchange_ended(const tuccl_exchange *) {
    return 1;
}
int tuccl_exchange_read(tuccl_exchange *, void *) {
    return 0;
}
void tuccl_exchange_destroy(tuccl_exchange *) {
}

namespace {

constexpr size_t kBatches = 2001;
constexpr size_t kCalls = 1000;
constexpr size_t kSizes = 4096;
constexpr uint64_t kLargest = uint64_t{1} << 31;
constexpr int kInt8 = 0;

uint64_t random_number(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

double now_ns() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

ncclComm_t communicator(size_t index) {
    return reinterpret_cast<ncclComm_t>((index + 1) << 12);
}

void measure(const char *label, const std::vector<size_t> &sizes, size_t communicators) {
    std::vector<double> batches;
    size_t next = 0;
    for (size_t batch = 0; batch < kBatches; batch++) {
        const double start = now_ns();
        for (size_t i = 0; i < kCalls; i++, next++)
            (void)ncclAllReduce(nullptr, nullptr, sizes[next % sizes.size()], kInt8, 0,
                                communicator(next % communicators), nullptr);
        batches.push_back((now_ns() - start) / kCalls);
    }
    std::sort(batches.begin(), batches.end());
    std::printf("%-44s median %6.1f ns  quartiles %6.1f to %6.1f ns  99th percentile %6.1f ns\n",
                label, batches[kBatches / 2], batches[kBatches / 4], batches[kBatches * 3 / 4],
                batches[kBatches * 99 / 100]);
}

} // namespace

int main(int count, char **arguments) {
    const size_t ranges = count == 2 ? std::strtoul(arguments[1], nullptr, 10) : 0;
    if (ranges == 0) {
        std::fprintf(stderr, "usage: bench_decision RANGES\n");
        return 2;
    }
    for (size_t index = 0; index < 4; index++) {
        tuccl::Serving serving;
        serving.grid = {1, 8, 0, 0};
        for (size_t i = 0; i < ranges; i++) {
            tuccl::Rule rule = {};
            rule.min_bytes = kLargest / ranges * i;
            rule.max_bytes = kLargest / ranges * (i + 1) - 1;
            rule.nthreads = 512;
            rule.root = tuccl::kAnyRoot;
            serving.decision.add(TUCCL_ALL_REDUCE, rule);
        }
        tuccl::Register::of_process().add(communicator(index), std::move(serving));
    }
    uint64_t state = 1;
    std::vector<size_t> sizes;
    for (size_t i = 0; i < kSizes; i++)
        sizes.push_back(1 + random_number(&state) % (kLargest - 2));
    measure("one size, one communicator", {1024}, 1);
    measure("4096 random sizes, four communicators", sizes, 4);
    measure("left to NCCL: no range holds the size", {kLargest + 1}, 1);
    return 0;
}
