// What a key's calls run by while its arms race: `ARMS NCCL CONNECTS CALLS CALL_US FIRST_US`, then
// the time of each arm in us. FIRST_US: what the host waits for each arm of CONNECTS. A job of one
// rank makes so many calls of the key, CALL_US apart. Prints each trial as `CALL ARMS`, and at last
// the choice, the heats that have ended and what slower arms took more.
#include "guard_protocol.h"

#include <cstdio>
#include <iostream>

using tuccl::GuardProtocol;

int main() {
    tuccl::GuardPace pace;
    pace.learns = true;
    GuardProtocol protocol(pace);
    tuccl::GuardArms arms;
    uint64_t calls = 0;
    uint64_t call_us = 0;
    float first_us = 0.0F;
    std::cin >> arms.count >> arms.nccl >> arms.connects >> calls >> call_us >> first_us;
    std::vector<float> us(arms.count);
    for (float &time_us : us)
        std::cin >> time_us;
    tuccl::GuardReport report = {};
    uint32_t timed = 0;
    const tuccl::GuardKey named = {4, 4096};
    for (uint64_t call = 0; call < calls; call++) {
        const GuardProtocol::Turn turn = protocol.next(named, arms);
        if (turn.begins) {
            std::printf("%llu", static_cast<unsigned long long>(call));
            for (const uint8_t arm : turn.key->trial)
                std::printf(" %u", unsigned{arm});
            std::printf("\n");
        }
        const auto trial_arms = static_cast<uint32_t>(turn.key->trial.size());
        if (turn.reports) {
            const auto times = report;
            report = tuccl::report_of(named, turn.key->trial, turn.call);
            for (uint32_t place = 0; place < timed; place++)
                report.times_us[place] = times.times_us[place];
            report.is_ready = 1;
            report.elapsed_us = call * call_us;
            for (const uint8_t arm : turn.key->trial)
                report.first_us += (arms.connects >> arm & 1) != 0 ? first_us : 0.0F;
        }
        if (turn.takes)
            protocol.settle(turn, tuccl::conclude(report, {report}, trial_arms, timed));
        const GuardProtocol::Run run = protocol.run_of(turn);
        if (run.place) {
            timed = *run.place + 1;
            report.times_us[*run.place] = us[*run.arm];
        }
    }
    const GuardProtocol::Key &key = protocol.keys().begin()->second;
    std::printf("%u %u %.0f\n", unsigned{key.choice}, key.races, protocol.slower_us());
}
