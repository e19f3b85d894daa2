#include "plan.h"

#include "groups.h"
#include "latency.h"
#include "rounds.h"

#include <algorithm>
#include <cstdio>
#include <functional>

namespace p2p {
namespace {

// Below this a pair may share its way with others (PCIe up to 16 lanes of generation 6), so it is
// measured alone, too. Two GPUs joined by NVSwitch or a wide NVLink share nothing but themselves.
constexpr double kSharedBelowGbPerS = 130;
// Slower than its like by more than noise: perhaps because of what ran beside it.
constexpr double kLikeTheBest = 0.9;

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

std::string of(size_t place, size_t count) {
    return std::to_string(place + 1) + "/" + std::to_string(count);
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
            pairs_by_copy_engine();
        if (options.latency)
            each_round("latency", [this](const Pairs &round) { latencies(round); });
        if (options.copy_engine)
            each_round("copy engine both ways", [this](const Pairs &round) {
                both_ways(round, "copy_engine_both", Method::kCopyEngine);
            });
        if (options.kernel)
            each_round("kernel copies", [this](const Pairs &round) { kernel_copies(round); });
        if (options.host)
            host_copies();
        if (options.copy_engine && machine.usable().size() > 2)
            fans();
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
            std::fprintf(stderr, "%s %s\n", of(i, steps.size()).c_str(), steps[i].text.c_str());
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

    void each_round(const std::string &text, const std::function<void(const Pairs &)> &work) {
        for (size_t i = 0; i < rounds.size(); i++)
            steps.push_back({text + ", round " + of(i, rounds.size()),
                             [this, i, work] { work(with_access(rounds[i], true)); }});
    }

    void keep(const std::vector<Measurement> &measured) {
        report.measurements.insert(report.measurements.end(), measured.begin(), measured.end());
    }

    void measure(const std::vector<Group> &groups) {
        if (!groups.empty())
            keep(measure_together(machine, groups, options.repetitions));
    }

    Pairs with_access(const Pairs &pairs, bool wanted) const {
        Pairs result;
        for (auto [a, b] : pairs)
            if (machine.access[a][b] == wanted)
                result.emplace_back(a, b);
        return result;
    }

    Group one_way(const std::string &what, Method method, int src, int dst,
                  bool reads = false) const {
        return {what, {src, dst}, {flow_between(machine, method, src, dst, reads)}};
    }

    void pairs_by_copy_engine() {
        for (size_t i = 0; i < rounds.size(); i++)
            steps.push_back({"copy engine, round " + of(i, rounds.size()), [this, i] {
                                 copy_engine_round(rounds[i]);
                                 copy_engine_round(reversed(rounds[i]));
                             }});
        steps.push_back({"copy engine, pairs alone", [this] { settle_speeds(); }});
    }

    void copy_engine_round(const Pairs &pairs) {
        std::vector<Group> groups;
        for (auto [a, b] : with_access(pairs, true))
            groups.push_back(one_way("copy_engine_concurrent", Method::kCopyEngine, a, b));
        measure(groups);
        for (auto [a, b] : with_access(pairs, false))
            keep({measure_staged(machine, one_way("copy_engine", Method::kCopyEngine, a, b),
                                 options.repetitions)});
    }

    // What ran beside others counts where nothing can have been shared, else it is measured alone.
    void settle_speeds() {
        std::vector<Measurement> together;
        for (const Measurement &measured : report.measurements) {
            if (measured.what != "copy_engine_concurrent")
                continue;
            together.push_back(measured);
            speeds[{measured.gpus[0], measured.gpus[1]}] = median(measured.samples);
        }
        const Speeds seen = speeds;
        for (Measurement &measured : together) {
            std::pair<int, int> ends(measured.gpus[0], measured.gpus[1]);
            measured.what = "copy_engine";
            if (measured.status == Status::kOk && may_share(ends, seen))
                measured = measure_together(
                    machine, {one_way("copy_engine", Method::kCopyEngine, ends.first, ends.second)},
                    options.repetitions)[0];
            speeds[ends] = median(measured.samples);
            keep({measured});
        }
    }

    bool may_share(std::pair<int, int> ends, const Speeds &among) const {
        double best = 0;
        for (const auto &[pair, speed] : among)
            best = std::max(best, speed);
        auto known = among.find(ends);
        return known == among.end() || known->second < kSharedBelowGbPerS ||
               known->second < kLikeTheBest * best;
    }

    // The pairs of a round in parts that do not disturb each other.
    std::vector<Pairs> parts(const Pairs &round) const {
        std::vector<Pairs> result;
        Pairs together;
        for (auto [a, b] : round) {
            if (may_share({a, b}, speeds) || may_share({b, a}, speeds))
                result.push_back({{a, b}});
            else
                together.emplace_back(a, b);
        }
        if (!together.empty())
            result.push_back(together);
        return result;
    }

    void latencies(const Pairs &round) {
        keep(measure_write_latency(machine, round, options.repetitions));
        keep(measure_write_latency(machine, reversed(round), options.repetitions));
        keep(measure_flag_latency(machine, round, options.repetitions));
    }

    void both_ways(const Pairs &round, const std::string &what, Method method) {
        for (const Pairs &pairs : parts(round)) {
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
        for (const Pairs &part : parts(round)) {
            for (const Pairs &pairs : {part, reversed(part)}) {
                std::vector<Group> writes, reads;
                for (auto [a, b] : pairs) {
                    writes.push_back(one_way("kernel_write", Method::kKernel, a, b));
                    reads.push_back(one_way("kernel_read", Method::kKernel, a, b, true));
                }
                measure(writes);
                measure(reads);
            }
        }
        both_ways(round, "kernel_write_both", Method::kKernel);
    }

    void host_copies() {
        std::vector<int> usable = machine.usable();
        for (size_t i = 0; i < usable.size(); i++)
            steps.push_back({"host and GPU " + of(i, usable.size()), [this, gpu = usable[i]] {
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

    void fans() {
        std::vector<int> usable = machine.usable();
        for (size_t i = 0; i < usable.size(); i++)
            steps.push_back(
                {"one and all others, GPU " + of(i, usable.size()), [this, hub = usable[i]] {
                     for (bool out : {true, false}) {
                         Group group =
                             fan_group(machine, out ? "fan_out" : "fan_in", hub, out, speeds);
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
