// A job across hosts, over stand-ins of NCCL and of the CUDA side:
//
//     phase_job SCENARIO HOSTS
//
// HOSTS has a letter for each rank, that of its host. Each rank is a process, of which the failure
// of one ends all. Exit code 0: all ranks passed.
#include "phase_job.h"

#include "real_nccl.h"

#include <chrono>
#include <csignal>
#include <cstring>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr auto kLimit = std::chrono::seconds(40);

[[noreturn]] void be_rank(Launch *launch, void (*scenario)(Seat &seat), const std::string &hosts,
                          int rank, pid_t parent) {
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
    setenv("NCCL_HOSTID", hosts.substr(static_cast<size_t>(rank), 1).c_str(), 1);
    const size_t local_ranks = std::min(hosts.find_first_not_of(hosts[0]), hosts.size());
    stand_in::set_device(rank); // As NCCL's stand-in has it.
    {
        Seat seat(launch, rank, static_cast<int>(local_ranks));
        scenario(seat);
    }
    std::exit(0); // Sanitizers look for leaks now.
}

int wait_for(std::vector<pid_t> processes, const Launch &launch) {
    const auto start = std::chrono::steady_clock::now();
    int failed = 0;
    while (!processes.empty()) {
        int status = 0;
        const pid_t ended = waitpid(-1, &status, WNOHANG);
        for (size_t i = 0; ended > 0 && i < processes.size(); i++)
            if (processes[i] == ended)
                processes.erase(processes.begin() + static_cast<std::ptrdiff_t>(i));
        const bool is_late = std::chrono::steady_clock::now() - start > kLimit;
        if ((ended > 0 && status != 0) || is_late) {
            for (const pid_t process : processes)
                (void)kill(process, SIGKILL);
            failed = 1;
            std::fprintf(stderr, "the last step of each rank:%s\n", launch.steps().c_str());
            break;
        }
        if (ended <= 0)
            stand_in::doze();
    }
    while (waitpid(-1, nullptr, 0) > 0) {
    }
    return failed;
}

} // namespace

void set_table(const std::string &name) {
    const std::string path = std::string(std::getenv("TEST_TABLES")) + "/" + name + ".tuccl";
    setenv("TUCCL_BUNDLE", path.c_str(), 1);
}

bool Seat::agree(const char *step, bool mine) {
    for (const int64_t other : tell(step, mine ? 1 : 0))
        if ((other != 0) != mine) {
            std::fprintf(stderr, "ranks differ in step %s\n", step);
            std::_Exit(1);
        }
    return mine;
}

int Seat::start(ncclComm_t *comm, bool has_executor) {
    if (rank == 0)
        CHECK(ncclGetUniqueId(&launch_->id) == 0);
    meet("start");
    const auto init = has_executor ? ncclCommInitRank : tuccl::real_nccl().CommInitRank.address;
    return init(comm, ranks, launch_->id, rank);
}

int Seat::start(ncclComm_t *comm, ncclConfig *config) {
    if (rank == 0)
        CHECK(ncclGetUniqueId(&launch_->id) == 0);
    meet("start");
    return ncclCommInitRankConfig(comm, ranks, launch_->id, rank, config);
}

ncclComm_t Seat::started() {
    ncclComm_t comm = nullptr;
    (void)stand_in::take_notes();
    CHECK(start(&comm) == 0);
    meet("started");
    const Notes notes;
    CHECK(frees_last(notes) && notes.count("makes a context") == 0);
    return comm;
}

bool is_served(Seat &seat, ncclComm_t comm, size_t count) {
    std::vector<int> data(count, 1 + seat.rank);
    const bool served = runs(seat, [&] {
        CHECK(ncclAllReduce(data.data(), data.data(), count, kInt32, kSum, comm, &seat.stream) ==
              0);
        seat.stream.wait();
    });
    CHECK(data == std::vector<int>(count, seat.ranks * (seat.ranks + 1) / 2));
    return served;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    const auto scenario = scenarios().at(arguments[1]);
    const std::string hosts = arguments[2];
    CHECK(hosts.size() >= 2 && hosts.size() <= stand_in::SharedMeeting::kMostRanks);
    auto *launch = stand_in::Shared::of_host().make<Launch>(static_cast<int>(hosts.size()));
    std::vector<pid_t> processes;
    const pid_t parent = getpid();
    for (int rank = 0; rank < static_cast<int>(hosts.size()); rank++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            be_rank(launch, scenario, hosts, rank, parent);
        processes.push_back(child);
    }
    return wait_for(processes, *launch);
}
