#include "gpu.h"

#include "buffers.h"

#include <sched.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

namespace p2p {
namespace {

constexpr size_t kMinBuffer = size_t{4} << 20;
constexpr size_t kMaxHostBuffer = size_t{64} << 20;
constexpr auto kWarmUp = std::chrono::milliseconds(60);
constexpr auto kHangLimit = std::chrono::seconds(10);

std::string lower_case(std::string text) {
    for (char &character : text)
        character = character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a')
                                                         : character;
    return text;
}

void read_facts(Gpu &gpu) {
    char bus_id[32] = "";
    check(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, gpu.device), "PCI bus id");
    gpu.facts.bus_id = lower_case(bus_id);
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, gpu.device), "device properties");
    gpu.facts.name = properties.name;
    gpu.facts.sm_count = properties.multiProcessorCount;
    gpu.facts.compute_capability = properties.major * 10 + properties.minor;
    gpu.facts.memory_bytes = properties.totalGlobalMem;
}

// Moves this thread to the CPUs near the GPU, so that host memory it touches first is local.
// Without permission or knowledge of these CPUs, nothing changes.
void move_near(const Gpu &gpu) {
    std::ifstream file("/sys/bus/pci/devices/" + gpu.facts.bus_id + "/local_cpulist");
    std::string list;
    if (!std::getline(file, list))
        return;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    std::istringstream ranges(list);
    for (std::string range; std::getline(ranges, range, ',');) {
        unsigned first = 0, last = 0;
        int read = std::sscanf(range.c_str(), "%u-%u", &first, &last);
        if (read < 1)
            return;
        last = read == 1 ? first : last;
        for (unsigned cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
            CPU_SET(cpu, &cpus);
    }
    if (CPU_COUNT(&cpus))
        (void)sched_setaffinity(0, sizeof cpus, &cpus);
}

template <typename Allocate, typename Release>
size_t two_buffers(size_t bytes, char *&a, char *&b, Allocate allocate, Release release,
                   const char *what) {
    auto call = [&](char **to, size_t size) {
        cudaError_t code = allocate(reinterpret_cast<void **>(to), size);
        (void)cudaGetLastError(); // or the next call would report it again
        return code;
    };
    check(allocate_two(a, b, bytes, kMinBuffer, cudaSuccess, cudaErrorMemoryAllocation, call,
                       release),
          what);
    return bytes;
}

void open_gpu(Gpu &gpu, size_t gpu_count, const Options &options) {
    read_facts(gpu);
    gpu.use();
    check(cudaFree(nullptr), "CUDA context");
    check(has_code(), "code for this GPU in tuccl-p2p");
    gpu.streams.resize(gpu_count + 1);
    for (cudaStream_t &stream : gpu.streams)
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    gpu.facts.buffer_bytes = two_buffers(
        options.bytes, gpu.send, gpu.receive,
        [](void **to, size_t bytes) { return cudaMalloc(to, bytes); }, cudaFree, "GPU memory");
    check(cudaMalloc(reinterpret_cast<void **>(&gpu.flags), kFlagBytes), "GPU memory");
    cudaStream_t stream = gpu.streams[0];
    check(fill(gpu.send, gpu.facts.buffer_bytes, gpu.seed(), stream), "fill");
    if (options.host) {
        move_near(gpu);
        gpu.facts.host_buffer_bytes = two_buffers(
            options.bytes < kMaxHostBuffer ? options.bytes : kMaxHostBuffer, gpu.host_send,
            gpu.host_receive,
            [](void **to, size_t bytes) {
                return cudaHostAlloc(to, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
            },
            cudaFreeHost, "pinned host memory");
        check(fill(gpu.host_send, gpu.facts.host_buffer_bytes, gpu.host_seed(), stream), "fill");
    }
    // Idle GPUs run at a fraction of their clocks; work raises them.
    auto start = Clock::now();
    do {
        for (int i = 0; i < 8; i++)
            check(
                copy(gpu.receive, gpu.send, gpu.facts.buffer_bytes, 2 * gpu.facts.sm_count, stream),
                "warm-up");
        wait_for(stream, "warm-up");
    } while (Clock::now() - start < kWarmUp);
}

// Runs the work for every GPU at once; an error is stored in the GPU's facts.
void for_all(std::vector<Gpu> &gpus, const std::function<void(Gpu &)> &work) {
    std::vector<std::thread> threads;
    for (Gpu &gpu : gpus)
        threads.emplace_back([&gpu, &work] {
            try {
                if (gpu.facts.error.empty())
                    work(gpu);
            } catch (const std::exception &error) {
                gpu.facts.error = error.what();
            }
        });
    for (std::thread &thread : threads)
        thread.join();
}

// Enables access from one GPU to another; returns the error, empty on success.
std::string enable_access(const Gpu &from, const Gpu &to) {
    int can = 0;
    cudaError_t code = cudaDeviceCanAccessPeer(&can, from.device, to.device);
    if (code == cudaSuccess && can)
        code = cudaDeviceEnablePeerAccess(to.device, 0);
    if (code == cudaSuccess || code == cudaErrorPeerAccessAlreadyEnabled)
        return can ? "" : "not supported";
    (void)cudaGetLastError();
    return from.facts.bus_id + " to " + to.facts.bus_id + ": " + cudaGetErrorString(code);
}

void enable_all_access(Machine &machine, Report &report) {
    size_t count = machine.gpus.size();
    const std::vector<int> opened = machine.usable();
    std::vector<std::vector<std::string>> refusals(count, std::vector<std::string>(count));
    for_all(machine.gpus, [&](Gpu &gpu) {
        gpu.use();
        for (int peer : opened)
            if (peer != gpu.device)
                refusals[gpu.device][peer] = enable_access(gpu, machine.gpus[peer]);
    });
    machine.access.assign(count, std::vector<bool>(count));
    const std::vector<int> usable = machine.usable();
    for (int a : usable) {
        for (int b : usable) {
            bool both = refusals[a][b].empty() && refusals[b][a].empty();
            machine.access[a][b] = a != b && both;
            if (a < b)
                report.pairs.push_back(
                    {a, b, both, refusals[a][b].empty() ? refusals[b][a] : refusals[a][b]});
        }
    }
}

} // namespace

void Gpu::use() const {
    check(cudaSetDevice(device), "selecting the GPU");
}

std::vector<int> Machine::usable() const {
    std::vector<int> found;
    for (const Gpu &gpu : gpus)
        if (gpu.facts.error.empty())
            found.push_back(gpu.device);
    return found;
}

Machine open_machine(const Options &options, Report &report) {
    int count = 0;
    check(cudaGetDeviceCount(&count), "GPUs of this host");
    if (count > kSlots)
        throw std::runtime_error(std::to_string(count) + " GPUs; at most " +
                                 std::to_string(kSlots) + " are measured: hide some with " +
                                 "CUDA_VISIBLE_DEVICES");
    Machine machine;
    machine.gpus.resize(static_cast<size_t>(count));
    for (int device = 0; device < count; device++)
        machine.gpus[device].device = device;
    for_all(machine.gpus, [&](Gpu &gpu) { open_gpu(gpu, static_cast<size_t>(count), options); });
    enable_all_access(machine, report);
    std::vector<int> usable = machine.usable();
    for (const Gpu &gpu : machine.gpus) {
        report.gpus.push_back(gpu.facts);
        if (usable.empty())
            throw std::runtime_error("GPU " + gpu.facts.bus_id + ": " + gpu.facts.error);
        if (gpu.facts.error.empty() && gpu.facts.buffer_bytes < options.bytes)
            report.notes.push_back("GPU " + gpu.facts.bus_id + ": memory is short, copies of " +
                                   std::to_string(gpu.facts.buffer_bytes) + " bytes at most");
    }
    if (usable.empty())
        throw std::runtime_error("no GPU is visible; see CUDA_VISIBLE_DEVICES");
    machine.gpus[usable[0]].use();
    check(cudaHostAlloc(reinterpret_cast<void **>(&machine.control), sizeof(Control),
                        cudaHostAllocPortable | cudaHostAllocMapped),
          "pinned host memory");
    std::memset(machine.control, 0, sizeof(Control));
    return machine;
}

void wait_for(cudaStream_t stream, const char *what) {
    auto deadline = Clock::now() + kHangLimit;
    for (;;) {
        cudaError_t code = cudaStreamQuery(stream);
        if (code == cudaSuccess)
            return;
        if (code != cudaErrorNotReady)
            check(code, what);
        if (Clock::now() > deadline)
            throw HungError(std::string(what) + " did not end within 10 seconds");
        std::this_thread::yield();
    }
}

} // namespace p2p
