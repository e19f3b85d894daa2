// What the checks of the executor on GPUs are started with, and the ranks that they run: all in one
// process, or each in its own, as in a job, which meet in a folder. Ranks beyond the host's GPUs
// share them.
#ifndef TUCCL_TESTS_GPU_RANKS_CUH
#define TUCCL_TESTS_GPU_RANKS_CUH

#include "../../../tuccl/runtime/executor/device_comm.h"
#include "../../../tuccl/runtime/executor/staging_need.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) {                                                               \
            std::printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_));            \
            std::fflush(stdout);                                                                   \
            std::_Exit(2);                                                                         \
        }                                                                                          \
    } while (0)

namespace gpu {

constexpr uint32_t kAllRanks = UINT32_MAX;
constexpr int kMeetingSeconds = 120;
constexpr size_t kBatch = 5; // Cases between two looks at the clock.

// The command line: words, and after them options.
struct Options {
    std::vector<std::string> words;
    bool times = true;
    bool exact = false;           // Buffers end where their data ends, for memcheck.
    bool fabric = false;          // Memory is shared by fabric handles, as over hosts.
    bool faulty = false;          // One call on buffers that are too short and were never written.
    uint32_t ranks = 0;           // As many as GPUs.
    uint32_t rank = kAllRanks;    // The only one of this process.
    std::filesystem::path folder; // Where the ranks' processes meet.
    size_t largest = SIZE_MAX;    // Bytes of a message.
    uint32_t threads = 1024;      // Most of a block.
    double seconds = 1e9;         // No more cases after that.

    bool owns(uint32_t one) const {
        return rank == kAllRanks || rank == one;
    }
};

[[noreturn]] inline void give_up(const std::string &why) {
    std::printf("%s\n", why.c_str());
    std::fflush(stdout);
    std::_Exit(2);
}

inline int device_count() {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    return count;
}

inline Options options_of(int argc, char **argv) {
    Options options;
    (void)std::setvbuf(stdout, nullptr, _IOLBF, 0); // Who is killed has said what it was at.
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i];
        const size_t equals = word.find('=');
        const std::string name = word.substr(0, equals);
        const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
        const auto number = [&] { return std::strtoull(value.c_str(), nullptr, 10); };
        if (name.rfind("--", 0) != 0)
            options.words.push_back(word);
        else if (name == "--no-times")
            options.times = false;
        else if (name == "--exact")
            options.exact = true;
        else if (name == "--fabric")
            options.fabric = true;
        else if (name == "--faulty")
            options.faulty = true;
        else if (name == "--ranks")
            options.ranks = static_cast<uint32_t>(number());
        else if (name == "--rank")
            options.rank = static_cast<uint32_t>(number());
        else if (name == "--folder")
            options.folder = value;
        else if (name == "--largest")
            options.largest = number();
        else if (name == "--threads")
            options.threads = static_cast<uint32_t>(number());
        else if (name == "--seconds")
            options.seconds = std::strtod(value.c_str(), nullptr);
        else
            give_up("no such option: " + word);
    }
    // Streams that share a queue to the device wait for one another, and ranks that share a device
    // would never end. Read when CUDA starts.
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (options.ranks == 0)
        options.ranks = static_cast<uint32_t>(device_count());
    if (options.ranks < 2 || options.ranks > TUCCL_MAX_RANKS)
        give_up("needs 2 to " + std::to_string(TUCCL_MAX_RANKS) + " ranks, has " +
                std::to_string(options.ranks) + ": see --ranks");
    if (options.rank != kAllRanks && (options.rank >= options.ranks || options.folder.empty()))
        give_up("--rank wants a smaller number than --ranks, and --folder");
    return options;
}

inline uint64_t word_or(const Options &options, size_t index, uint64_t otherwise) {
    return index < options.words.size() ? std::strtoull(options.words[index].c_str(), nullptr, 10)
                                        : otherwise;
}

// Ranks that share a device.
inline uint32_t sharing(uint32_t ranks) {
    const auto devices = static_cast<uint32_t>(device_count());
    return (ranks + devices - 1) / devices;
}

inline void use_device_of(uint32_t rank) {
    CHECK(cudaSetDevice(static_cast<int>(rank) % device_count()));
}

// Leaves something for the other ranks' processes.
inline void put(const Options &options, const std::string &name, const std::string &bytes) {
    const std::filesystem::path part = options.folder / (name + ".part");
    std::ofstream(part, std::ios::binary) << bytes;
    std::filesystem::rename(part, options.folder / name);
}

// What another one left, when it is there.
inline std::string get(const Options &options, const std::string &name) {
    const auto begin = std::chrono::steady_clock::now();
    while (!std::filesystem::exists(options.folder / name)) {
        if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(kMeetingSeconds))
            give_up("another rank did not leave " + name);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream file(options.folder / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Waits until so many ranks' processes are here. Each name once.
inline void meet(const Options &options, const std::string &name, uint32_t ranks) {
    if (options.rank == kAllRanks)
        return;
    put(options, name + "." + std::to_string(options.rank), "");
    for (uint32_t rank = 0; rank < ranks; rank++)
        (void)get(options, name + "." + std::to_string(rank));
}

// Whether a case is to be run: rank 0 says so for a batch, by its clock.
class Clock {
  public:
    explicit Clock(const Options &options) : options_(options) {
    }
    bool goes_on(size_t number) {
        if (number % kBatch != 0)
            return true;
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
        const std::string name = "batch" + std::to_string(number);
        const bool on = passed.count() < options_.seconds;
        if (options_.rank == kAllRanks)
            return on;
        if (options_.rank == 0)
            put(options_, name, on ? "on" : "end");
        return get(options_, name) == "on";
    }

  private:
    const Options &options_;
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

struct Device {
    tuccl_device_comm *comm = nullptr; // NULL in processes of other ranks.
    cudaStream_t stream = nullptr;
};

inline std::vector<Device> devices_of(uint32_t ranks, const Options &options) {
    std::vector<Device> devices(ranks);
    const tuccl_staging staging = tuccl::most_staging(ranks);
    unsigned char handles[TUCCL_MAX_RANKS][TUCCL_HANDLE_BYTES];
    const auto name = [&](uint32_t rank) {
        return "handle" + std::to_string(ranks) + "." + std::to_string(rank);
    };
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (!options.owns(rank))
            continue;
        use_device_of(rank);
        CHECK(cudaStreamCreateWithFlags(&devices[rank].stream, cudaStreamNonBlocking));
        if (const char *reason = tuccl_device_comm_create(
                &devices[rank].comm, {rank, ranks, options.fabric}, &staging, handles[rank]))
            give_up(std::string("create: ") + reason);
        if (options.rank == rank)
            put(options, name(rank), {reinterpret_cast<char *>(handles[rank]), TUCCL_HANDLE_BYTES});
    }
    for (uint32_t rank = 0; rank < ranks && options.rank < ranks; rank++)
        std::memcpy(handles[rank], get(options, name(rank)).data(), TUCCL_HANDLE_BYTES);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (!options.owns(rank))
            continue;
        use_device_of(rank);
        if (const char *reason = tuccl_device_comm_connect(devices[rank].comm, handles))
            give_up(std::string("connect: ") + reason);
    }
    return devices;
}

// A rank's process ends its communicator when nobody writes there any more.
inline void release(std::vector<Device> &devices, const Options &options) {
    const auto ranks = static_cast<uint32_t>(devices.size());
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (!options.owns(rank))
            continue;
        use_device_of(rank);
        CHECK(cudaStreamSynchronize(devices[rank].stream));
    }
    if (options.rank < ranks)
        meet(options, "end" + std::to_string(ranks), ranks);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (!options.owns(rank))
            continue;
        use_device_of(rank);
        tuccl_device_comm_destroy(devices[rank].comm);
        CHECK(cudaStreamDestroy(devices[rank].stream));
    }
}

} // namespace gpu

#endif
