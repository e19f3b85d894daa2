#include "communicator.h"

#include "choose.h"
#include "free_sums.h"
#include "guard.h"
#include "log.h"
#include "metrics.h"

extern "C" {
#include "bundle.h"
}

#include <algorithm>
#include <chrono>
#include <thread>

namespace tuccl {

namespace {

// Returns the choice as a rule of this communicator.
bool chosen_rule(const tuccl_entry_record &entry, const Serving &serving, uint32_t operation,
                 uint64_t bytes, Rule *rule) {
    const Plan &plan = serving.plan;
    return plan.chooses && bytes >= entry.min_bytes && bytes <= entry.max_bytes &&
           make_rule(entry, plan.programs, operation, serving.grid, rule) &&
           keep_within(plan.bounds, plan.programs, rule);
}

// NCCL's kernels for windows, and its copies by copy engines, are of these operations. Elsewhere a
// rank may pass a buffer that has no meaning.
bool may_use_windows(uint32_t operation) {
    return operation == TUCCL_ALL_REDUCE || operation == TUCCL_ALL_GATHER ||
           operation == TUCCL_REDUCE_SCATTER || operation == TUCCL_ALLTOALL;
}

} // namespace

tuccl_call call_by(const Rule &rule, const NcclCall &call) {
    tuccl_call made = {};
    made.send = call.send;
    made.receive = call.receive;
    made.count = call.count;
    made.operation = call.kind;
    made.type = static_cast<uint8_t>(call.type);
    made.reduction = static_cast<uint8_t>(tuccl_is_reduction(call.kind) ? call.reduction : 0);
    made.root = static_cast<uint8_t>(call.root);
    made.pattern = rule.pattern;
    made.protocol = rule.protocol;
    made.nchannels = rule.nchannels;
    made.nthreads = rule.nthreads;
    made.program = rule.program;
    made.buffer_bytes = rule.buffer_bytes;
    return made;
}

bool supports(const Serving &serving, const tuccl_call &call) {
    return serving.runner != nullptr ? serving.runner->supports(call)
                                     : tuccl_device_supports(serving.device.get(), &call) != 0;
}

int put(const Serving &serving, const tuccl_call &call, ncclStream stream,
        const std::atomic<bool> &gave_up) {
    if (serving.runner != nullptr)
        return serving.runner->run(call, stream, gave_up);
    return tuccl_device_launch(serving.device.get(), &call, stream) == 0 ? kNcclSuccess
                                                                         : kNcclUnhandledCudaError;
}

bool Communicator::decide(const NcclCall &call, tuccl_call *decided) const {
    return serving_.guard != nullptr ? serving_.guard->decide(*this, call, decided)
                                     : decide_by_table(call, decided);
}

bool Communicator::decide_by_table(const NcclCall &call, tuccl_call *decided) const {
    const auto bytes =
        table_bytes(call.kind, static_cast<uint32_t>(call.type), call.count, serving_.grid.ranks());
    if (!bytes)
        return false;
    Rule own;
    const Rule *rule = &own;
    const tuccl_entry_record *chosen = chosen_entry();
    if (chosen == nullptr)
        rule = serving_.plan.decision.find(call.kind, *bytes);
    else if (!chosen_rule(*chosen, serving_, call.kind, *bytes, &own))
        return false;
    return rule != nullptr && decide_by(*rule, call, decided);
}

bool Communicator::decide_by(const Rule &rule, const NcclCall &call, tuccl_call *decided) const {
    // Larger codes are types that the executor lacks (8-bit floats), and user-defined reductions
    // (ncclRedOpCreatePreMulSum).
    if (call.kind >= kOperations || call.type < 0 || call.type >= TUCCL_TYPES ||
        call.reduction < 0 || call.reduction >= TUCCL_REDUCTIONS || call.root < 0 ||
        static_cast<uint32_t>(call.root) >= serving_.grid.ranks() || call.count == 0 ||
        (rule.root != kAnyRoot && rule.root != call.root) ||
        (!rule.in_windows && may_use_windows(call.kind) && windows_.hold(call.send, call.receive)))
        return false;
    *decided = call_by(rule, call);
    return supports(serving_, *decided);
}

const char *Communicator::prepare(const tuccl_entry_record &choice) {
    Rule rule;
    tuccl_program program;
    const void *programs = serving_.plan.programs;
    if (!serving_.plan.chooses || serving_.runner == nullptr ||
        !tuccl_programs_at(programs, choice.schedule, &program) ||
        !make_rule(choice, programs, program.header->operation, serving_.grid, &rule))
        return nullptr;
    return prepare_rails(rule);
}

int Communicator::launch(const tuccl_call &call, ncclStream stream) {
    if (const int failed = order_next(stream))
        return failed;
    if (const int failed = put(serving_, call, stream, gave_up_))
        return failed;
    if (const int failed = order_done())
        return failed;
    count_call();
    if (Metrics *here = metrics())
        here->ran(call.operation, Path::kSchedule, 1, buffer_bytes(call.type, call.count));
    return kNcclSuccess;
}

int Communicator::hand_over_in_order(const NcclCall &call) {
    if (const int failed = order_next(call.stream))
        return failed;
    const int result = hand_over(call);
    // A communicator that does not block puts the call there later.
    return result == kNcclSuccess ? order_done() : result;
}

// NCCL alone orders its calls.
int Communicator::order_next(ncclStream stream) {
    if (serving_.device == nullptr)
        return kNcclSuccess;
    return serving_.order.before(serving_.device.get(), stream) == 0 ? kNcclSuccess
                                                                     : kNcclUnhandledCudaError;
}

int Communicator::order_done() {
    if (serving_.device == nullptr)
        return kNcclSuccess;
    return serving_.order.after(serving_.device.get()) == 0 ? kNcclSuccess
                                                            : kNcclUnhandledCudaError;
}

void Communicator::wait_for_calls() const {
    constexpr auto kLongest = std::chrono::seconds(1);
    const auto start = std::chrono::steady_clock::now();
    while (users_.load() != 0 && std::chrono::steady_clock::now() - start < kLongest)
        std::this_thread::yield();
}

bool Communicator::give_up() {
    if (gave_up_.exchange(true))
        return false;
    if (serving_.device != nullptr)
        tuccl_device_abort(serving_.device.get());
    return true;
}

void Communicator::give_up_for(int error) {
    if (give_up())
        log_warning("executor ends what runs on a communicator: NCCL reports error %d on it",
                    error);
}

} // namespace tuccl
