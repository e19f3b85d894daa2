#include "measure.h"

#include <algorithm>
#include <cmath>

namespace p2p {
namespace {

constexpr double kSampleMs = 3.0; // long compared with a launch
constexpr int kMaxCopies = 64;
constexpr size_t kTrialBytes = size_t{8} << 20;
constexpr size_t kMinCopy = size_t{4} << 20;
constexpr uint64_t kGateLimitNs = 1000000000;
constexpr int kPoison = 0xa5;

// A group during its measurement.
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

using Groups = std::vector<Running>;

template <typename Work> void for_each_valid(Groups &running_groups, Work work) {
    for (Running &running : running_groups) {
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

// Queues one timed sample: gate, start, the concurrent flows, stop.
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

// Runs one sample of every group at once; returns milliseconds by group, 0 after a failure.
std::vector<double> run_sample(Groups &running_groups, Control *control) {
    uint32_t ticket = control->gate + 1;
    for_each_valid(running_groups, [&](Running &running) {
        *running.missed = 0;
        queue_sample(running, control, ticket);
    });
    __atomic_store_n(&control->gate, ticket, __ATOMIC_RELEASE);
    // Wait for failed groups as well: their queued work must end before the next sample.
    for (Running &running : running_groups) {
        for (const Flow &flow : running.group.flows) {
            try {
                wait_for(flow.stream, "transfer");
            } catch (const CudaError &error) {
                running.fail(Status::kFailed, error.what());
            }
        }
    }
    std::vector<double> times(running_groups.size());
    for (size_t i = 0; i < running_groups.size(); i++) {
        float milliseconds = 0;
        if (!running_groups[i].failed() &&
            cudaEventElapsedTime(&milliseconds, running_groups[i].start, running_groups[i].stop) !=
                cudaSuccess) {
            (void)cudaGetLastError();
            running_groups[i].fail(Status::kFailed, "the time of a transfer could not be read");
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

// The GPU that can certainly access the received data.
const Gpu &receiver(const Flow &flow) {
    return flow.dst ? *flow.dst : *flow.runs_on;
}

// Overwrites the receiving buffers, so that data of an earlier transfer is not taken for new.
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

// Sets the amount of data of a sample from a short first transfer.
void set_sample_size(Groups &running_groups, Control *control) {
    std::vector<Group> whole;
    for (Running &running : running_groups) {
        whole.push_back(running.group);
        for (Flow &flow : running.group.flows)
            flow.bytes = std::min(flow.bytes, kTrialBytes);
    }
    (void)run_sample(running_groups, control); // wakes the link
    std::vector<double> times = run_sample(running_groups, control);
    for (size_t i = 0; i < running_groups.size(); i++) {
        double trial_bytes = static_cast<double>(running_groups[i].bytes());
        running_groups[i].group = whole[i];
        if (running_groups[i].failed())
            continue;
        double once_ms = times[i] * static_cast<double>(running_groups[i].bytes()) / trial_bytes;
        double repeats = kSampleMs / std::max(once_ms, 1e-3);
        running_groups[i].copies = std::clamp(static_cast<int>(std::ceil(repeats)), 1, kMaxCopies);
        for (Flow &flow : running_groups[i].group.flows) {
            auto bytes = static_cast<size_t>(static_cast<double>(flow.bytes) * repeats);
            if (repeats < 1)
                flow.bytes =
                    std::min(flow.bytes, std::max(bytes, kMinCopy) / kAlignment * kAlignment);
        }
    }
}

std::vector<Measurement> measure(Control *control, Groups running_groups, int repetitions) {
    for_each_valid(running_groups, create_events);
    for_each_valid(running_groups, poison);
    set_sample_size(running_groups, control);
    (void)run_sample(running_groups, control); // a warm-up at full size
    for (int i = 0; i < repetitions; i++) {
        std::vector<double> times = run_sample(running_groups, control);
        for (size_t k = 0; k < running_groups.size(); k++) {
            if (running_groups[k].failed())
                continue;
            if (*running_groups[k].missed)
                running_groups[k].fail(Status::kFailed,
                                       "the transfers could not be started together");
            else if (times[k] <= 0)
                running_groups[k].fail(Status::kFailed, "a transfer took no time");
            else
                running_groups[k].measured.samples.push_back(
                    static_cast<double>(running_groups[k].bytes()) / times[k] / 1e6);
        }
    }
    for_each_valid(running_groups, check_data);
    std::vector<Measurement> measured;
    for (Running &running : running_groups) {
        destroy_events(running);
        measured.push_back(running.measured);
    }
    return measured;
}

Running prepare(const Machine &machine, const Group &group, size_t slot) {
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
    Groups running_groups;
    for (size_t i = 0; i < groups.size(); i++)
        running_groups.push_back(prepare(machine, groups[i], i));
    return measure(machine.control, running_groups, repetitions);
}

Measurement measure_staged(const Machine &machine, Group group, int repetitions) {
    Running running = prepare(machine, group, 0);
    running.staged = true;
    return measure(machine.control, {running}, repetitions)[0];
}

Flow flow_between(const Machine &machine, Method method, int src, int dst, bool reads) {
    const Gpu &from = machine.gpus[src], &to = machine.gpus[dst], &runner = reads ? to : from;
    Flow flow;
    flow.method = method;
    flow.runs_on = &runner;
    flow.stream = runner.streams[reads ? src : dst];
    flow.src = &from;
    flow.dst = &to;
    flow.from = from.send;
    flow.to = to.receive;
    flow.bytes = std::min(from.facts.buffer_bytes, to.facts.buffer_bytes);
    flow.seed = from.seed();
    return flow;
}

Group host_group(const Machine &machine, const std::string &what, int index, bool to_gpu) {
    const Gpu &gpu = machine.gpus[index];
    Flow flow;
    flow.runs_on = &gpu;
    flow.stream = gpu.streams[index];
    flow.src = to_gpu ? nullptr : &gpu;
    flow.dst = to_gpu ? &gpu : nullptr;
    flow.from = to_gpu ? gpu.host_send : gpu.send;
    flow.to = to_gpu ? gpu.receive : gpu.host_receive;
    flow.bytes = std::min(gpu.facts.host_buffer_bytes, gpu.facts.buffer_bytes);
    flow.seed = to_gpu ? gpu.host_seed() : gpu.seed();
    return {what, {index}, {flow}};
}

Group fan_group(const Machine &machine, const std::string &what, int hub, bool out,
                const Speeds &speeds) {
    Group group{what, {hub}, {}};
    std::vector<double> speed;
    for (int peer : machine.usable()) {
        auto known = speeds.find(out ? std::make_pair(hub, peer) : std::make_pair(peer, hub));
        if (!machine.access[hub][peer] || known == speeds.end() || known->second <= 0)
            continue;
        auto [src, dst] = known->first;
        group.flows.push_back(flow_between(machine, Method::kCopyEngine, src, dst));
        speed.push_back(known->second);
    }
    for (size_t i = 0; i < group.flows.size(); i++) {
        Flow &flow = group.flows[i];
        size_t slice = flow.bytes / group.flows.size() / kAlignment * kAlignment;
        double share = speed[i] / *std::max_element(speed.begin(), speed.end());
        flow.to += out ? 0 : i * slice;
        auto bytes = static_cast<size_t>(static_cast<double>(slice) * share);
        flow.bytes = std::max(bytes / kAlignment * kAlignment, kAlignment);
    }
    return group;
}

} // namespace p2p
