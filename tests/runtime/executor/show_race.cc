// How arms race: lines of `ARMS NCCL REFUSED JOB_US CALLS` and each arm's time, in us. A call of
// the one size takes JOB_US of the job, more than the slowest arm. Prints the choice, the races
// that have ended, the calls by each arm, what slower calls took more, and the job's time.
#include "guard_protocol.h"

#include <cstdio>
#include <iostream>
#include <optional>
#include <vector>

namespace {

using tuccl::GuardKey;
using tuccl::GuardPace;
using tuccl::GuardProtocol;
using tuccl::GuardReport;

void show(const tuccl::GuardArms &arms, uint32_t refused, uint64_t job_us, int calls,
          const std::vector<float> &times_us) {
    GuardPace pace;
    pace.learns = true;
    GuardProtocol protocol(pace);
    const GuardKey key = {4, 4096};
    std::vector<float> timed;
    std::optional<GuardReport> report;
    std::vector<int> made(times_us.size());
    double slower_us = 0.0;
    for (int call = 0; call < calls; call++) {
        const GuardProtocol::Turn turn = protocol.next(key, arms);
        if (turn.takes)
            protocol.settle(turn, tuccl::conclude(*report, {*report, *report},
                                                  static_cast<uint32_t>(turn.key->trial.size()),
                                                  protocol.timed_calls(turn.key->trial)));
        if (turn.reports) {
            report = tuccl::report_of(key, turn.key->trial, turn.call);
            report->elapsed_us = job_us * static_cast<uint64_t>(call);
            report->is_ready = 1;
            for (const uint8_t arm : turn.key->trial)
                report->refused |= refused & 1U << arm;
            std::copy(timed.begin(), timed.end(), report->times_us);
        }
        const GuardProtocol::Run run = protocol.run_of(turn);
        // What NCCL does not run takes the time of its own choice.
        const bool is_refused = (refused >> *run.arm & 1) != 0;
        const float time_us = times_us[is_refused ? arms.nccl : *run.arm];
        if (run.place == 0U)
            timed.clear();
        if (run.place)
            timed.push_back(time_us);
        made[*run.arm]++;
        slower_us += std::max(time_us - times_us[turn.key->choice], 0.0F);
    }
    const GuardProtocol::Key &state = protocol.keys().at(key);
    std::printf("%u %u %g %g", unsigned{state.choice}, state.races, protocol.slower_us(),
                slower_us);
    for (const int each : made)
        std::printf(" %d", each);
    std::printf("\n");
}

} // namespace

int main() {
    tuccl::GuardArms arms;
    uint32_t refused = 0;
    uint64_t job_us = 0;
    int calls = 0;
    while (std::cin >> arms.count >> arms.nccl >> refused >> job_us >> calls) {
        std::vector<float> times_us(arms.count);
        for (float &time_us : times_us)
            std::cin >> time_us;
        show(arms, refused, job_us, calls, times_us);
    }
    return 0;
}
