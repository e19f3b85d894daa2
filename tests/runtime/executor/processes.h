// Ranks as processes that were forked from a scenario's.
#ifndef TUCCL_TEST_PROCESSES_H
#define TUCCL_TEST_PROCESSES_H

#include "session.h"
#include "stand_in_shared.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

// What processes share with one another besides the roll, as NCCL's own bootstrap would be.
template <typename Shared> Shared *share() {
    void *memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return new (memory) Shared{};
}

struct Barrier {
    std::atomic<uint32_t> arrived;
    void meet(uint32_t processes) {
        const uint32_t turn = arrived.fetch_add(1) / processes;
        while (arrived.load() / processes == turn)
            std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
};

// What the ranks of a job share beside NCCL, as a launcher would let them.
struct Launch {
    explicit Launch(int ranks_) : ranks(ranks_), meeting(ranks_) {
    }
    const int ranks;
    stand_in::SharedMeeting meeting;
    ncclUniqueId id = {};
    struct Place {
        std::atomic<const char *> step{"begin"};
        std::atomic<int64_t> told{0};
    };
    std::array<Place, 32> places;

    // Gathers a value of every rank; `step` shows where a rank hangs.
    std::vector<int64_t> tell(int rank, const char *step, int64_t mine) {
        Place &place = places.at(static_cast<size_t>(rank));
        place.told.store(mine);
        place.step.store(step);
        (void)meeting.meet();
        std::vector<int64_t> all;
        for (int other = 0; other < ranks; other++)
            all.push_back(places.at(static_cast<size_t>(other)).told.load());
        (void)meeting.meet();
        return all;
    }
    // The last step of each rank.
    std::string steps() const {
        std::string text;
        for (int rank = 0; rank < ranks; rank++)
            text +=
                " " + std::to_string(rank) + ":" + places.at(static_cast<size_t>(rank)).step.load();
        return text;
    }
};

inline pid_t in_process(const std::function<void()> &body) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        body();
        std::_Exit(0);
    }
    return child;
}

inline void end_well(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

inline void end_killed(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

inline void in_processes(uint32_t count, const std::function<void(uint32_t)> &body) {
    std::vector<pid_t> children;
    for (uint32_t rank = 0; rank < count; rank++)
        children.push_back(in_process([&] { body(rank); }));
    for (const pid_t child : children)
        end_well(child);
}

#endif
