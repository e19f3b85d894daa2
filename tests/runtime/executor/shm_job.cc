// Jobs that start, split and destroy communicators again and again beside neighbours in /dev/shm:
//
//     shm_job NAME=NUMBER...
//
// seed; jobs at a time, each of so many processes and threads in each; lives: how often their
// processes are started, for so many rounds each; user of the jobs; strangers (user 65534), twins
// (the jobs' own user) and fillers; free_pages and free_inodes of a full /dev/shm; limit_s without
// progress; must_serve: the executor serves every communicator; may_fail: starts may; leaves_own:
// rolls may stay until the user's next process starts a communicator; across_hosts: rolls are on
// the network. Exit code 1 and a line that begins with "failure: ": something is wrong.
#include "processes.h"
#include "shm_neighbours.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <map>
#include <random>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using stand_in::Shared;

namespace {

constexpr uid_t kStranger = 65534;
constexpr int kMostRanks = 8;

std::map<std::string, int> options = {
    {"seed", 1},        {"jobs", 1},         {"processes", 2},  {"threads", 1},  {"lives", 1},
    {"rounds", 4},      {"user", 0},         {"strangers", 0},  {"twins", 0},    {"fillers", 0},
    {"free_pages", -1}, {"free_inodes", -1}, {"must_serve", 0}, {"may_fail", 0}, {"leaves_own", 0},
    {"limit_s", 20},    {"across_hosts", 0},
};

int option(const char *name) {
    return options.at(name);
}

struct Counts {
    std::atomic<uint64_t> progress{0}; // Steps of any rank.
    std::atomic<uint64_t> served{0};
    std::atomic<uint64_t> left_to_nccl{0};
    std::atomic<uint64_t> failed_starts{0};
};
Counts *counts;

struct Job : Launch {
    Job(int ranks_, int number_) : Launch(ranks_), number(number_) {
    }
    const int number;
};

[[noreturn]] void fail(const std::string &why) {
    std::printf("failure: %s\n", why.c_str());
    std::fflush(stdout);
    std::_Exit(1);
}

class JobRank {
  public:
    JobRank(Job *job, int rank) : job_(job), rank_(rank) {
    }

    void round(std::mt19937 &random) {
        if (rank_ == 0)
            CHECK(ncclGetUniqueId(&job_->id) == 0);
        (void)tell("meeting", 0);
        ncclComm_t comm = nullptr;
        const int started = ncclCommInitRank(&comm, job_->ranks, job_->id, rank_);
        if (!all_started("start", started)) {
            drop(comm, started);
            return;
        }
        std::vector<int> everybody(static_cast<size_t>(job_->ranks));
        std::vector<int> colors;
        for (size_t i = 0; i < everybody.size(); i++) {
            everybody[i] = static_cast<int>(i);
            colors.push_back(static_cast<int>(random() % 2));
        }
        reduce(comm, everybody);
        ncclComm_t part = nullptr;
        const int color = colors[static_cast<size_t>(rank_)];
        const int split = ncclCommSplit(comm, color, 0, &part, nullptr);
        if (!all_started("split", split)) {
            drop(part, split);
            drop(comm, 0);
            return;
        }
        everybody.erase(
            std::remove_if(everybody.begin(), everybody.end(),
                           [&](int other) { return colors[static_cast<size_t>(other)] != color; }),
            everybody.end());
        reduce(part, everybody);
        CHECK(ncclCommDestroy(part) == 0 && ncclCommDestroy(comm) == 0);
        (void)tell("destroyed", 0);
    }

  private:
    // Gathers a value of every rank.
    std::vector<int64_t> tell(const char *step, int mine) {
        const std::vector<int64_t> all = job_->tell(rank_, step, mine);
        counts->progress.fetch_add(1);
        return all;
    }

    bool all_started(const char *step, int mine) {
        const std::vector<int64_t> all = tell(step, mine);
        if (std::count(all.begin(), all.end(), 0) == job_->ranks)
            return true;
        if (option("may_fail") == 0)
            fail(std::string(step) + " of rank " + std::to_string(rank_) + " ended with " +
                 std::to_string(mine));
        if (rank_ == 0)
            counts->failed_starts.fetch_add(1);
        return false;
    }

    // Of a start that failed somewhere.
    void drop(ncclComm_t comm, int result) {
        if (result == 0 && comm != nullptr)
            (void)ncclCommAbort(comm);
        (void)tell("aborted", 0);
    }

    // All of the members run it by the executor, or all by NCCL; it is right either way.
    void reduce(ncclComm_t comm, const std::vector<int> &members) {
        std::vector<int> data(64, 1 + rank_);
        int expected = 0;
        for (const int member : members)
            expected += 1 + member;
        const int before = stand_in::launched_by_this_thread();
        CHECK(ncclAllReduce(data.data(), data.data(), data.size(), kInt32, kSum, comm, &stream_) ==
              0);
        const int launched = stand_in::launched_by_this_thread() - before;
        const std::vector<int64_t> all = tell("all_reduce", launched);
        for (const int member : members)
            if (all[static_cast<size_t>(member)] != launched)
                fail("rank " + std::to_string(rank_) + " launched " + std::to_string(launched) +
                     " kernels of the executor, rank " + std::to_string(member) + " " +
                     std::to_string(all[static_cast<size_t>(member)]));
        stream_.wait();
        if (data != std::vector<int>(data.size(), expected))
            fail("rank " + std::to_string(rank_) + " has " + std::to_string(data[0]) + " and not " +
                 std::to_string(expected));
        if (members.size() > 1 && members.front() == rank_)
            (launched > 0 ? counts->served : counts->left_to_nccl).fetch_add(1);
        if (members.size() > 1 && launched == 0 && option("must_serve") != 0)
            fail("a communicator is NCCL's, and nobody could disturb it");
    }

    Job *job_;
    const int rank_;
    stand_in::Stream stream_;
};

size_t open_files() {
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != nullptr);
    while (readdir(folder) != nullptr)
        count++;
    CHECK(closedir(folder) == 0);
    return count;
}

void be_ranks(Job *job, int process, uint32_t seed) {
    const int threads = option("threads");
    if (process == 0) { // It listens from now on, where the rolls are on the network.
        (void)new_id();
    }
    const size_t files = open_files();
    std::vector<std::thread> ranks;
    for (int thread = 0; thread < threads; thread++)
        ranks.emplace_back([=] {
            std::mt19937 random(seed); // The same on all ranks.
            JobRank rank(job, process * threads + thread);
            for (int i = 0; i < option("rounds"); i++)
                rank.round(random);
        });
    for (std::thread &rank : ranks)
        rank.join();
    // Freeing a communicator is detached work, which a busy machine may complete later.
    for (int waited_ms = 0; open_files() != files && waited_ms < 10000; waited_ms += 10)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (open_files() != files)
        fail(std::to_string(files) + " files were open, and now " + std::to_string(open_files()));
}

template <typename Body> pid_t as_user(uid_t user, const Body &body) {
    const pid_t parent = getpid();
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        become(user);
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        if (getppid() != parent)
            std::_Exit(1);
        body();
        std::fflush(stdout);
        std::_Exit(0);
    }
    return child;
}

void kill_all(const std::vector<pid_t> &processes) {
    for (const pid_t process : processes)
        (void)kill(process, SIGKILL);
    for (const pid_t process : processes)
        (void)waitpid(process, nullptr, 0);
}

std::string steps_of(const std::vector<Job *> &jobs) {
    std::string text;
    for (const Job *job : jobs)
        text += " job " + std::to_string(job->number) + job->steps();
    return text;
}

// Waits for all of them; empty, or what went wrong, with the others ended.
std::string wait_for(std::vector<pid_t> ranks, const std::vector<Job *> &jobs) {
    using Clock = std::chrono::steady_clock;
    uint64_t progress = 0;
    Clock::time_point since = Clock::now();
    while (!ranks.empty()) {
        for (size_t i = 0; i < ranks.size(); i++) {
            int status = 0;
            if (waitpid(ranks[i], &status, WNOHANG) != ranks[i])
                continue;
            ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(i--));
            if (status == 0)
                continue;
            kill_all(ranks);
            return WIFSIGNALED(status)
                       ? "a rank was ended by signal " + std::to_string(WTERMSIG(status))
                       : "a rank ended with exit code " + std::to_string(WEXITSTATUS(status));
        }
        if (counts->progress.load() != progress) {
            progress = counts->progress.load();
            since = Clock::now();
        } else if (Clock::now() - since > std::chrono::seconds(option("limit_s"))) {
            kill_all(ranks);
            return "ranks hang; the last step of each:" + steps_of(jobs);
        }
        stand_in::doze();
    }
    return {};
}

// Starts the processes of all jobs once.
std::string live(int jobs_count, uint32_t seed) {
    std::vector<Job *> jobs;
    std::vector<pid_t> ranks;
    for (int i = 0; i < jobs_count; i++) {
        const int count = option("processes") * option("threads");
        jobs.push_back(Shared::of_host().make<Job>(count, i));
        Job *job = jobs.back();
        for (int process = 0; process < option("processes"); process++)
            ranks.push_back(as_user(static_cast<uid_t>(option("user")), [job, process, seed, i] {
                be_ranks(job, process, seed + static_cast<uint32_t>(i));
            }));
    }
    return wait_for(ranks, jobs);
}

std::vector<pid_t> start_neighbours() {
    const auto user = static_cast<uid_t>(option("user"));
    std::vector<pid_t> neighbours;
    uint64_t seed = static_cast<uint64_t>(option("seed")) << 8;
    for (int i = 0; i < option("strangers"); i++, seed++)
        neighbours.push_back(as_user(kStranger, [seed] { change_what_is_there(seed); }));
    for (int i = 0; i < option("twins"); i++, seed++)
        neighbours.push_back(as_user(user, [seed] { change_what_is_there(seed); }));
    for (int i = 0; i < option("fillers"); i++, seed++)
        neighbours.push_back(as_user(kStranger, [seed] { fill_again_and_again(seed); }));
    return neighbours;
}

std::string left_over() {
    std::string text;
    for (const std::string &name : shm_names())
        if (is_sound_roll(name, static_cast<uid_t>(option("user"))))
            text += " " + name;
    return text;
}

std::string play() {
    fill_shm(option("free_pages"), option("free_inodes"));
    const std::vector<pid_t> neighbours = start_neighbours();
    std::string fault;
    for (int i = 0; i < option("lives") && fault.empty(); i++)
        fault = live(option("jobs"), static_cast<uint32_t>(option("seed") + 1000 * i));
    kill_all(neighbours);
    if (!fault.empty())
        return fault;
    clean_shm(static_cast<uid_t>(option("user")));
    const std::string left = left_over();
    if (option("leaves_own") == 0 && !left.empty())
        return "left in /dev/shm:" + left;
    // Alone again: served, and nothing is left.
    options["must_serve"] = 1;
    options["may_fail"] = 0;
    options["rounds"] = 1;
    fault = live(1, 0);
    if (!fault.empty())
        return "after the neighbours: " + fault;
    const std::string still_left = left_over();
    return still_left.empty() ? "" : "left in /dev/shm after the next start:" + still_left;
}

// What lies beside the program, readable by any user that a job may have.
void set_table_in_memory(const std::string &program) {
    const char *name = option("across_hosts") != 0 ? "/across_hosts.tuccl" : "/table.tuccl";
    std::ifstream beside(program.substr(0, program.rfind('/')) + name, std::ios::binary);
    const std::string table{std::istreambuf_iterator<char>(beside), {}};
    const int file = memfd_create("table", 0);
    CHECK(!table.empty() && file >= 0 && fchmod(file, 0666) == 0);
    CHECK(write(file, table.data(), table.size()) == static_cast<ssize_t>(table.size()));
    setenv("TUCCL_BUNDLE", ("/proc/self/fd/" + std::to_string(file)).c_str(), 1);
}

} // namespace

int main(int count, char **arguments) {
    for (int i = 1; i < count; i++) {
        const std::string argument = arguments[i];
        const size_t equals = argument.find('=');
        CHECK(equals != std::string::npos && options.count(argument.substr(0, equals)) == 1);
        options[argument.substr(0, equals)] = std::atoi(argument.c_str() + equals + 1);
    }
    CHECK(option("processes") * option("threads") <= kMostRanks);
    set_table_in_memory(arguments[0]);
    counts = Shared::of_host().make<Counts>();
    const std::string fault = play();
    std::printf("served=%llu nccl=%llu failed=%llu\n",
                static_cast<unsigned long long>(counts->served.load()),
                static_cast<unsigned long long>(counts->left_to_nccl.load()),
                static_cast<unsigned long long>(counts->failed_starts.load()));
    if (!fault.empty())
        fail(fault);
    return 0;
}
