// What is said, counted and logged of trials: commands on standard input, a word and numbers each.
// Prints the lines of NCCL's log, and at the end the metrics. FOLDER BYTES: of the log of verdicts.
#include "guard_watch.h"

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

namespace {
int64_t now_s = 0;

int64_t clock_ns() {
    return now_s * 1'000'000'000;
}
} // namespace

int main(int, char **arguments) {
    tuccl::Metrics metrics(arguments[1], "11-c0ffee00", "3");
    tuccl::VerdictLog log(arguments[1], std::stoull(arguments[2]));
    uint32_t rank = 0;
    std::cin >> rank;
    auto watch = std::make_unique<tuccl::GuardWatch>(
        tuccl::WatchTerms{rank, 0xABCD, 8, 2, 4, 0xF00D, &metrics, &log}, clock_ns);
    std::string command;
    uint64_t call = 0;
    while (std::cin >> command) {
        tuccl::GuardKey key = {};
        if (command == "at") {
            std::cin >> now_s;
        } else if (command == "ran") {
            int choice = 0; // 0: the entry, 1: NCCL's own choice, 2: neither.
            int place = 0;  // -1: in no trial.
            int times = 0;
            std::cin >> key.operation >> key.bytes >> choice >> place >> times;
            for (int i = 0; i < times; i++)
                watch->ran(key, choice == 2 ? std::nullopt : std::optional<bool>(choice == 0),
                           place < 0 ? std::nullopt
                                     : std::optional<uint32_t>(static_cast<uint32_t>(place)));
        } else if (command == "waited") {
            watch->waited();
        } else if (command == "ended") {
            int verdict = 0;
            float entry_us = 0;
            float nccl_us = 0;
            size_t left_out = 0;
            std::cin >> key.operation >> key.bytes >> verdict >> entry_us >> nccl_us >> left_out;
            const size_t first = entry_us > 0 ? 0 : 1; // What the table says.
            watch->concluded({key,
                              static_cast<tuccl::TrialVerdict>(verdict),
                              {{"table", entry_us}, {"nccl", nccl_us}, {"ring/LL", 10.0F}},
                              verdict == 2 ? first + 1 : first,
                              verdict == 5   ? 2U
                              : verdict == 1 ? 1U
                                             : first,
                              ++call},
                             left_out);
        }
    }
    const std::string text = metrics.text(1'700'000'000, true);
    std::printf("--\n");
    watch = nullptr; // It says the rest.
    std::printf("--\n%s", text.c_str());
    return 0;
}
