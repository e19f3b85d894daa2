#include "transfer.h"

#include "cuda_error.h"

#include <algorithm>
#include <cmath>

namespace p2p {
namespace {

constexpr double kSampleMs = 3.0; // long beside a launch's microseconds
constexpr int kMostCopies = 64;
constexpr size_t kFirstTry = size_t{8} << 20;
constexpr size_t kLeastCopy = size_t{4} << 20;
constexpr uint64_t kGateLimitNs = 1000000000;
constexpr int kPoison = 0xa5;

// A group that is being measured.
struct Running {
    Group group;
    Measurement measured;
    bool staged = false;
    int copies = 1;
    uint32_t *missed = nullptr;
    uint32_t *mismatch = nullptr;
    cudaEvent_t start = nullptr, stop = nullptr;
    std::vector<cudaEvent_t> ends;

    const Flow &first() const {
        return group.flows[0];
    }
    bool failed() const {
        return measured.status != Status::kOk;
    }
    void fail(Status status, const std::string &detail) {
        measured.status = status;
        measured.detail = detail;
        measured.samples.clear();
    }
    size_t bytes() const {
        size_t sum = 0;
        for (const Flow &flow : group.flows)
            sum += flow.bytes * static_cast<size_t>(copies);
        return sum;
    }
};

using All = std::vector<Running>;

template <typename Work> void for_good(All &all, Work work) {
    for (Running &running : all) {
        if (running.failed())
            continue;
        try {
            work(running);
        } catch (const CudaError &error) {
            running.fail(Status::kFailed, error.what());
        }
    }
}

void copy_once(const Flow &flow) {
    if (flow.method == Method::kKernel)
        check(copy(flow.to, flow.from, flow.bytes, 2 * flow.runs_on->facts.sm_count, flow.stream),
              "kernel copy");
    else if (flow.src && flow.dst)
        check(cudaMemcpyPeerAsync(flow.to, flow.dst->device, flow.from, flow.src->device,
                                  flow.bytes, flow.stream),
              "copy between GPUs");
    else
        check(cudaMemcpyAsync(flow.to, flow.from, flow.bytes, cudaMemcpyDefault, flow.stream),
              "copy between host and GPU");
}

// Queues one timed sample: gate, start, the flows beside each other, stop.
void queue_sample(Running &running, const Control *control, uint32_t ticket) {
    const Flow &first = running.first();
    first.runs_on->use();
    if (!running.staged)
        check(hold(&control->gate, ticket, kGateLimitNs, running.missed, first.stream),
              "start gate");
    check(cudaEventRecord(running.start, first.stream), "start event");
    for (size_t i = 0; i < running.group.flows.size(); i++) {
        const Flow &flow = running.group.flows[i];
        flow.runs_on->use();
        if (i > 0)
            check(cudaStreamWaitEvent(flow.stream, running.start, 0), "start of a flow");
        for (int k = 0; k < running.copies; k++)
            copy_once(flow);
        if (i > 0)
            check(cudaEventRecord(running.ends[i], flow.stream), "end event");
    }
    first.runs_on->use();
    for (size_t i = 1; i < running.group.flows.size(); i++)
        check(cudaStreamWaitEvent(first.stream, running.ends[i], 0), "end of a flow");
    check(cudaEventRecord(running.stop, first.stream), "stop event");
}

// Runs one sample of every group at once; milliseconds by group, 0 for those that failed.
std::vector<double> run_sample(All &all, Control *control) {
    uint32_t ticket = control->gate + 1;
    for_good(all, [&](Running &running) {
        *running.missed = 0;
        queue_sample(running, control, ticket);
    });
    __atomic_store_n(&control->gate, ticket, __ATOMIC_RELEASE);
    // Also those that failed on the way: what they queued must be gone before the next sample.
    for (Running &running : all) {
        for (const Flow &flow : running.group.flows) {
            try {
                wait_for(flow.stream, "transfer");
            } catch (const CudaError &error) {
                running.fail(Status::kFailed, error.what());
            }
        }
    }
    std::vector<double> times(all.size());
    for (size_t i = 0; i < all.size(); i++) {
        float milliseconds = 0;
        if (!all[i].failed() &&
            cudaEventElapsedTime(&milliseconds, all[i].start, all[i].stop) != cudaSuccess) {
            (void)cudaGetLastError();
            all[i].fail(Status::kFailed, "the time of a transfer could not be read");
        }
        times[i] = milliseconds;
    }
    return times;
}

void create_events(Running &running) {
    running.first().runs_on->use();
    check(cudaEventCreate(&running.start), "event");
    check(cudaEventCreate(&running.stop), "event");
    running.ends.resize(running.group.flows.size());
    for (size_t i = 1; i < running.ends.size(); i++) {
        running.group.flows[i].runs_on->use();
        check(cudaEventCreateWithFlags(&running.ends[i], cudaEventDisableTiming), "event");
    }
}

void destroy_events(Running &running) {
    running.ends.push_back(running.start);
    running.ends.push_back(running.stop);
    for (cudaEvent_t event : running.ends)
        if (event)
            (void)cudaEventDestroy(event);
    (void)cudaGetLastError();
}

// The GPU that has the received data before it: only that one is sure to have access.
const Gpu &receiver(const Flow &flow) {
    return flow.dst ? *flow.dst : *flow.runs_on;
}

// Overwrites what is to be received, so that data of an earlier transfer cannot pass for new.
void poison(Running &running) {
    for (const Flow &flow : running.group.flows) {
        const Gpu &gpu = receiver(flow);
        gpu.use();
        check(cudaMemsetAsync(flow.to, kPoison, flow.bytes, gpu.streams.back()),
              "clearing a buffer");
        wait_for(gpu.streams.back(), "clearing a buffer");
    }
}

void check_data(Running &running) {
    *running.mismatch = 0;
    for (const Flow &flow : running.group.flows) {
        const Gpu &gpu = receiver(flow);
        gpu.use();
        check(compare(flow.to, flow.bytes, flow.seed, running.mismatch, gpu.streams.back()),
              "check of the data");
        wait_for(gpu.streams.back(), "check of the data");
    }
    if (*running.mismatch)
        running.fail(Status::kCorrupt, "the data that arrived is not the data that was sent");
}

// A short first transfer tells how much data a sample needs.
void choose_amount(All &all, Control *control) {
    std::vector<Group> whole;
    for (Running &running : all) {
        whole.push_back(running.group);
        for (Flow &flow : running.group.flows)
            flow.bytes = std::min(flow.bytes, kFirstTry);
    }
    (void)run_sample(all, control); // wakes the link
    std::vector<double> times = run_sample(all, control);
    for (size_t i = 0; i < all.size(); i++) {
        double first_try = static_cast<double>(all[i].bytes());
        all[i].group = whole[i];
        if (all[i].failed())
            continue;
        double once_ms = times[i] * static_cast<double>(all[i].bytes()) / first_try;
        double wanted = kSampleMs / std::max(once_ms, 1e-3);
        all[i].copies = std::clamp(static_cast<int>(std::ceil(wanted)), 1, kMostCopies);
        for (Flow &flow : all[i].group.flows) {
            auto bytes = static_cast<size_t>(static_cast<double>(flow.bytes) * wanted);
            if (wanted < 1)
                flow.bytes =
                    std::min(flow.bytes, std::max(bytes, kLeastCopy) / kAlignment * kAlignment);
        }
    }
}

std::vector<Measurement> measure(Control *control, All all, int repetitions) {
    for_good(all, create_events);
    for_good(all, poison);
    choose_amount(all, control);
    (void)run_sample(all, control); // the first at full size is a warm-up
    for (int i = 0; i < repetitions; i++) {
        std::vector<double> times = run_sample(all, control);
        for (size_t k = 0; k < all.size(); k++) {
            if (all[k].failed())
                continue;
            if (*all[k].missed)
                all[k].fail(Status::kFailed, "the transfers could not be started together");
            else if (times[k] <= 0)
                all[k].fail(Status::kFailed, "a transfer took no time");
            else
                all[k].measured.samples.push_back(static_cast<double>(all[k].bytes()) / times[k] /
                                                  1e6);
        }
    }
    for_good(all, check_data);
    std::vector<Measurement> measured;
    for (Running &running : all) {
        destroy_events(running);
        measured.push_back(running.measured);
    }
    return measured;
}

Running prepared(const Machine &machine, const Group &group, size_t slot) {
    Running running;
    running.group = group;
    running.measured = {group.what, group.gpus, "GB/s", {}, Status::kOk, ""};
    running.missed = &machine.control->missed[slot];
    running.mismatch = &machine.control->mismatch[slot];
    return running;
}

} // namespace

std::vector<Measurement> measure_together(const Machine &machine, std::vector<Group> groups,
                                          int repetitions) {
    All all;
    for (size_t i = 0; i < groups.size(); i++)
        all.push_back(prepared(machine, groups[i], i));
    return measure(machine.control, all, repetitions);
}

Measurement measure_staged(const Machine &machine, Group group, int repetitions) {
    Running running = prepared(machine, group, 0);
    running.staged = true;
    return measure(machine.control, {running}, repetitions)[0];
}

} // namespace p2p
