#include "groups.h"

#include <algorithm>

namespace p2p {

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
