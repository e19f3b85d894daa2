#include "measure.h"
#include "rounds.h"

#include <algorithm>
#include <cstdio>
#include <functional>

namespace p2p {
namespace {

// Bandwidth below which a pair may share links with other pairs (PCIe up to 16 lanes of generation
// 6), so that it is measured alone as well. GPUs with NVSwitch or a wide NVLink share no links.
constexpr double kSharedBelowGbPerS = 130;
// Share of the best bandwidth below which concurrent copies may have slowed a pair down.
constexpr double kUndisturbedShare = 0.9;

double median(std::vector<double> samples) {
    if (samples.empty())
        return 0;
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2];
}

Pairs reversed(const Pairs &pairs) {
    Pairs result;
    for (auto [a, b] : pairs)
        result.emplace_back(b, a);
    return result;
}

std::string fraction_text(size_t index, size_t count) {
    return std::to_string(index + 1) + "/" + std::to_string(count);
}

struct Step {
    std::string text;
    std::function<void()> run;
};

class Plan {
  public:
    Plan(const Machine &machine, const Options &options, Clock::time_point begin, Report &report)
        : machine(machine), options(options), begin(begin), report(report),
          rounds(round_robin(machine.usable())) {
        if (options.copy_engine)
            add_copy_engine_rounds();
        if (options.latency)
            add_rounds("latency", [this](const Pairs &round) { latencies(round); });
        if (options.copy_engine)
            add_rounds("copy engine both ways", [this](const Pairs &round) {
                both_ways(round, "copy_engine_both", Method::kCopyEngine);
            });
        if (options.kernel)
            add_rounds("kernel copies", [this](const Pairs &round) { kernel_copies(round); });
        if (options.host)
            add_host_copies();
        if (options.copy_engine && machine.usable().size() > 2)
            add_fans();
    }

    void run() {
        for (size_t i = 0; i < steps.size(); i++) {
            std::chrono::duration<double> passed = Clock::now() - begin;
            if (passed.count() > options.seconds) {
                report.notes.push_back(
                    "the time was up, so " + std::to_string(steps.size() - i) + " of " +
                    std::to_string(steps.size()) +
                    " steps were not begun, the first of them: " + steps[i].text);
                return;
            }
            std::fprintf(stderr, "%s %s\n", fraction_text(i, steps.size()).c_str(),
                         steps[i].text.c_str());
            steps[i].run();
        }
    }

  private:
    const Machine &machine;
    const Options &options;
    const Clock::time_point begin;
    Report &report;
    const std::vector<Pairs> rounds;
    std::vector<Step> steps;
    Speeds speeds; // of the copy engine

    void add_rounds(const std::string &text, const std::function<void(const Pairs &)> &work) {
        for (size_t i = 0; i < rounds.size(); i++)
            steps.push_back({text + ", round " + fraction_text(i, rounds.size()),
                             [this, i, work] { work(with_access(rounds[i], true)); }});
    }

    void keep(const std::vector<Measurement> &measured) {
        report.measurements.insert(report.measurements.end(), measured.begin(), measured.end());
    }

    void measure(const std::vector<Group> &groups) {
        if (!groups.empty())
            keep(measure_together(machine, groups, options.repetitions));
    }

    Pairs with_access(const Pairs &pairs, bool has_access) const {
        Pairs result;
        for (auto [a, b] : pairs)
            if (machine.access[a][b] == has_access)
                result.emplace_back(a, b);
        return result;
    }

    Group single_flow(const std::string &what, Method method, int src, int dst,
                      bool reads = false) const {
        return {what, {src, dst}, {flow_between(machine, method, src, dst, reads)}};
    }

    void add_copy_engine_rounds() {
        for (size_t i = 0; i < rounds.size(); i++)
            steps.push_back({"copy engine, round " + fraction_text(i, rounds.size()), [this, i] {
                                 copy_engine_round(rounds[i]);
                                 copy_engine_round(reversed(rounds[i]));
                             }});
        steps.push_back({"copy engine, pairs alone", [this] { settle_speeds(); }});
    }

    void copy_engine_round(const Pairs &pairs) {
        std::vector<Group> groups;
        for (auto [a, b] : with_access(pairs, true))
            groups.push_back(single_flow("copy_engine_concurrent", Method::kCopyEngine, a, b));
        measure(groups);
        for (auto [a, b] : with_access(pairs, false))
            keep({measure_staged(machine, single_flow("copy_engine", Method::kCopyEngine, a, b),
                                 options.repetitions)});
    }

    // Keeps the concurrent figure of a pair that cannot have shared links, else measures it alone.
    void settle_speeds() {
        std::vector<Measurement> concurrent;
        for (const Measurement &measured : report.measurements) {
            if (measured.what != "copy_engine_concurrent")
                continue;
            concurrent.push_back(measured);
            speeds[{measured.gpus[0], measured.gpus[1]}] = median(measured.samples);
        }
        const Speeds concurrent_speeds = speeds;
        for (Measurement &measured : concurrent) {
            std::pair<int, int> ends(measured.gpus[0], measured.gpus[1]);
            measured.what = "copy_engine";
            if (measured.status == Status::kOk && may_share(ends, concurrent_speeds))
                measured = measure_together(
                    machine,
                    {single_flow("copy_engine", Method::kCopyEngine, ends.first, ends.second)},
                    options.repetitions)[0];
            speeds[ends] = median(measured.samples);
            keep({measured});
        }
    }

    bool may_share(std::pair<int, int> ends, const Speeds &speeds_by_pair) const {
        double best = 0;
        for (const auto &[pair, speed] : speeds_by_pair)
            best = std::max(best, speed);
        auto known = speeds_by_pair.find(ends);
        return known == speeds_by_pair.end() || known->second < kSharedBelowGbPerS ||
               known->second < kUndisturbedShare * best;
    }

    // Splits the pairs of a round into batches of pairs that do not slow each other down.
    std::vector<Pairs> batches(const Pairs &round) const {
        std::vector<Pairs> result;
        Pairs concurrent;
        for (auto [a, b] : round) {
            if (may_share({a, b}, speeds) || may_share({b, a}, speeds))
                result.push_back({{a, b}});
            else
                concurrent.emplace_back(a, b);
        }
        if (!concurrent.empty())
            result.push_back(concurrent);
        return result;
    }

    void latencies(const Pairs &round) {
        keep(measure_write_latency(machine, round, options.repetitions));
        keep(measure_write_latency(machine, reversed(round), options.repetitions));
        keep(measure_flag_latency(machine, round, options.repetitions));
    }

    void both_ways(const Pairs &round, const std::string &what, Method method) {
        for (const Pairs &pairs : batches(round)) {
            std::vector<Group> groups;
            for (auto [a, b] : pairs)
                groups.push_back(
                    {what,
                     {a, b},
                     {flow_between(machine, method, a, b), flow_between(machine, method, b, a)}});
            measure(groups);
        }
    }

    void kernel_copies(const Pairs &round) {
        for (const Pairs &batch : batches(round)) {
            for (const Pairs &pairs : {batch, reversed(batch)}) {
                std::vector<Group> writes, reads;
                for (auto [a, b] : pairs) {
                    writes.push_back(single_flow("kernel_write", Method::kKernel, a, b));
                    reads.push_back(single_flow("kernel_read", Method::kKernel, a, b, true));
                }
                measure(writes);
                measure(reads);
            }
        }
        both_ways(round, "kernel_write_both", Method::kKernel);
    }

    void add_host_copies() {
        std::vector<int> usable = machine.usable();
        for (size_t i = 0; i < usable.size(); i++)
            steps.push_back(
                {"host and GPU " + fraction_text(i, usable.size()), [this, gpu = usable[i]] {
                     measure({host_group(machine, "host_to_gpu", gpu, true)});
                     measure({host_group(machine, "gpu_to_host", gpu, false)});
                 }});
        if (usable.size() < 2)
            return;
        steps.push_back(
            {"host and all GPUs", [this, usable] {
                 std::vector<Group> down, up;
                 for (int gpu : usable) {
                     down.push_back(host_group(machine, "host_to_gpu_concurrent", gpu, true));
                     up.push_back(host_group(machine, "gpu_to_host_concurrent", gpu, false));
                 }
                 measure(down);
                 measure(up);
             }});
    }

    void add_fans() {
        std::vector<int> usable = machine.usable();
        for (size_t i = 0; i < usable.size(); i++)
            steps.push_back({"one and all others, GPU " + fraction_text(i, usable.size()),
                             [this, hub = usable[i]] {
                                 for (bool out : {true, false}) {
                                     Group group = fan_group(machine, out ? "fan_out" : "fan_in",
                                                             hub, out, speeds);
                                     if (group.flows.size() > 1)
                                         measure({group});
                                 }
                             }});
    }
};

} // namespace

void measure_all(const Machine &machine, const Options &options, Clock::time_point begin,
                 Report &report) {
    Plan(machine, options, begin, report).run();
}

} // namespace p2p
