// The interposer against a stand-in of NCCL: session SCENARIO FOLDER
#include "session.h"

#include "scenarios.h"
#include "stand_in_meeting.h"

#include <memory>
#include <thread>

namespace {

std::unique_ptr<stand_in::Meeting> threads_meeting;

} // namespace

void meet_threads() {
    threads_meeting->meet();
}

void in_threads(int ranks, const std::function<void(Rank &)> &body) {
    threads_meeting = std::make_unique<stand_in::Meeting>(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; rank++)
        threads.emplace_back([&body, rank, ranks] {
            Rank mine;
            mine.rank = rank;
            mine.ranks = ranks;
            stand_in::set_device(rank);
            body(mine);
        });
    for (std::thread &thread : threads)
        thread.join();
}

void with_communicator(int ranks, const std::function<void(Rank &)> &body) {
    const ncclUniqueId id = new_id();
    in_threads(ranks, [&](Rank &rank) {
        CHECK(ncclCommInitRank(&rank.comm, ranks, id, rank.rank) == 0);
        on_rank_0(rank, [&] { (void)stand_in::take_notes(); });
        body(rank);
        rank.stream.wait();
        if (rank.comm != nullptr)
            CHECK(ncclCommDestroy(rank.comm) == 0);
    });
}

std::string table_path(const std::string &name) {
    return std::string(std::getenv("TEST_TABLES")) + "/" + name + ".tuccl";
}

void set_table(const std::string &name) {
    setenv("TUCCL_BUNDLE", table_path(name).c_str(), 1);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    setenv("TEST_FOLDER", arguments[2], 1);
    if (std::getenv("TUCCL_BUNDLE") == nullptr)
        set_table("session");
    scenarios().at(arguments[1])();
    std::puts("passed");
    return 0;
}
