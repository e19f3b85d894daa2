// How arms race: lines of `ARMS NCCL REFUSED CONNECTS FIRST_US JOB_US CALLS` and each arm's time,
// in us. A call of the one size takes JOB_US of the job; the host waits FIRST_US for the first call
// of each arm of CONNECTS in a trial. Prints the choice, the heats that have ended, what slower
// calls took more as the protocol counts it and as it was, the calls by each arm, and each trial of
// two arms and more as `CALL:ARMS`.
#include "guard_protocol.h"

#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace {

using tuccl::GuardKey;
using tuccl::GuardPace;
using tuccl::GuardProtocol;
using tuccl::GuardReport;

void show(const tuccl::GuardArms &arms, uint32_t refused, float first_us, uint64_t job_us,
          int calls, const std::vector<float> &times_us) {
    GuardPace pace;
    pace.learns = true;
    GuardProtocol protocol(pace);
    const GuardKey key = {4, 4096};
    std::vector<float> timed;
    std::optional<GuardReport> report;
    std::vector<int> made(times_us.size());
    std::string trials;
    double slower_us = 0.0;
    for (int call = 0; call < calls; call++) {
        const GuardProtocol::Turn turn = protocol.next(key, arms);
        if (turn.begins && turn.key->trial.size() > 1) {
            trials += " " + std::to_string(call) + ":";
            for (const uint8_t arm : turn.key->trial)
                trials += std::to_string(arm);
        }
        if (turn.takes)
            protocol.settle(turn, tuccl::conclude(*report, {*report, *report},
                                                  static_cast<uint32_t>(turn.key->trial.size()),
                                                  protocol.timed_calls(turn.key->trial)));
        if (turn.reports) {
            report = tuccl::report_of(key, turn.key->trial, turn.call);
            report->elapsed_us = job_us * static_cast<uint64_t>(call);
            report->is_ready = 1;
            for (const uint8_t arm : turn.key->trial) {
                report->refused |= refused & 1U << arm;
                report->first_us += (arms.connects >> arm & 1) != 0 ? first_us : 0.0F;
            }
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
    std::printf("%s\n", trials.c_str());
}

} // namespace

int main() {
    tuccl::GuardArms arms;
    uint32_t refused = 0;
    uint64_t job_us = 0;
    float first_us = 0.0F;
    int calls = 0;
    while (std::cin >> arms.count >> arms.nccl >> refused >> arms.connects >> first_us >> job_us >>
           calls) {
        std::vector<float> times_us(arms.count);
        for (float &time_us : times_us)
            std::cin >> time_us;
        show(arms, refused, first_us, job_us, calls, times_us);
    }
    return 0;
}
