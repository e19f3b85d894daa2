// A job of processes that share no /dev/shm, as on several hosts:
//
//     network_job RANKS NAME=VALUE...
//
// bare: a rank without the executor. hosts: network namespaces, the ranks in turn. pairs: a child
// of two ranks each is made as well. again: rank whose first start fails, and is tried again.
// Every rank makes a communicator, runs an all_reduce, and prints a line with what came of it.
#include "processes.h"
#include "real_nccl.h"
#include "session.h"
#include "stand_in_shared.h"

#include <array>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <sched.h>
#include <sstream>
#include <sys/mount.h>

namespace {

std::map<std::string, std::string> options = {
    {"bare", "-1"}, {"hosts", ""}, {"pairs", "0"}, {"again", "-1"}};

struct Job {
    ncclUniqueId id;
    Barrier made, started, ended;
};

// The functions that a rank calls: the interposer's, or NCCL's own.
struct Functions {
    decltype(&ncclCommInitRank) init = ncclCommInitRank;
    decltype(&ncclCommSplit) split = ncclCommSplit;
    decltype(&ncclAllReduce) all_reduce = ncclAllReduce;
    decltype(&ncclCommDestroy) destroy = ncclCommDestroy;
};

Functions functions_of(int rank) {
    const tuccl::RealNccl &nccl = tuccl::real_nccl();
    if (rank != std::stoi(options["bare"]))
        return {};
    return {nccl.CommInitRank.address, nccl.CommSplit.address, nccl.AllReduce.address,
            nccl.CommDestroy.address};
}

// Leaves this host for one of its own, with nothing in /dev/shm that another rank sees.
void be_on_a_host(int rank) {
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
    CHECK(mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") == 0);
    std::vector<std::string> hosts;
    std::stringstream named(options["hosts"]);
    for (std::string name; std::getline(named, name, ',');)
        hosts.push_back(name);
    if (hosts.empty())
        return;
    const std::string path = "/run/netns/" + hosts[static_cast<size_t>(rank) % hosts.size()];
    const int host = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    CHECK(host >= 0 && setns(host, CLONE_NEWNET) == 0 && close(host) == 0);
}

void reduce(const Functions &functions, ncclComm_t comm, int expected, int rank,
            std::string *text) {
    stand_in::Stream stream;
    std::vector<int> data(16, 1 + rank);
    const int before = stand_in::launched_by_this_thread();
    CHECK(functions.all_reduce(data.data(), data.data(), data.size(), kInt32, kSum, comm,
                               &stream) == 0);
    stream.wait();
    CHECK(data == std::vector<int>(data.size(), expected));
    *text += stand_in::launched_by_this_thread() > before ? " executor" : " nccl";
}

void be_rank(Job *job, int rank, int ranks) {
    be_on_a_host(rank);
    const Functions functions = functions_of(rank);
    if (rank == 0)
        CHECK(ncclGetUniqueId(&job->id) == 0);
    job->made.meet(static_cast<uint32_t>(ranks));
    ncclComm_t comm = nullptr;
    const auto begin = std::chrono::steady_clock::now();
    int result = functions.init(&comm, ranks, job->id, rank);
    if (result != 0 && rank == std::stoi(options["again"]))
        result = functions.init(&comm, ranks, job->id, rank);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::string text = "rank " + std::to_string(rank) + " started with " + std::to_string(result);
    if (result == 0) {
        reduce(functions, comm, ranks * (ranks + 1) / 2, rank, &text);
        ncclComm_t pair = nullptr;
        if (options["pairs"] == "1") {
            CHECK(functions.split(comm, rank / 2, 0, &pair, nullptr) == 0);
            const int first = rank / 2 * 2;
            reduce(functions, pair, 2 * first + 3, rank, &text);
            CHECK(functions.destroy(pair) == 0);
        }
        CHECK(functions.destroy(comm) == 0);
        job->ended.meet(static_cast<uint32_t>(ranks));
    }
    std::printf("%s, seconds %d\n", text.c_str(), static_cast<int>(took.count()));
    std::fflush(stdout);
}

} // namespace

int main(int count, char **arguments) {
    CHECK(count >= 2);
    for (int i = 2; i < count; i++) {
        const std::string argument = arguments[i];
        const size_t equals = argument.find('=');
        CHECK(equals != std::string::npos && options.count(argument.substr(0, equals)) == 1);
        options[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
    const int ranks = std::atoi(arguments[1]);
    (void)stand_in::Shared::of_host();
    auto *job = share<Job>();
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; rank++)
        children.push_back(in_process([=] { be_rank(job, rank, ranks); }));
    for (const pid_t child : children) {
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        if (status != 0)
            std::printf("process ended with status %d\n", status);
    }
    return 0;
}
