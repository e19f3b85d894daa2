// Communicators: staging memory shared between processes through handles, within one process
// through peer access.
//
// NCCL's symmetric windows are not used: NCCL 2.28 has no host call that returns a peer's address,
// and CUDA's handles depend on neither NCCL's release nor its device headers.
#include "device_comm.h"

#include "nvlink.h"
#include "program_plan.h"
#include "secrets.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <strings.h>
#include <thread>

namespace {

// IPC shares whole blocks of this size: other data in a block could be read by peers.
constexpr size_t kBlockBytes = size_t{2} << 20;

// The handle that a rank sends to its peers.
struct Handle {
    tuccl::MemoryHandle memory;
    uint64_t process; // Random: process ids of two containers may be equal.
    void *address;
    int32_t device;
    tuccl::NvlinkEnds nvlink;
};
static_assert(sizeof(Handle) <= TUCCL_HANDLE_BYTES, "a handle must fit");

uint64_t this_process() {
    static const uint64_t number = tuccl::random_number();
    return number;
}

// Makes a device current for the lifetime of the object.
class OnDevice {
  public:
    explicit OnDevice(int device) {
        if (cudaGetDevice(&before_) == cudaSuccess && before_ != device)
            restore_ = cudaSetDevice(device) == cudaSuccess;
    }
    ~OnDevice() {
        if (restore_)
            (void)cudaSetDevice(before_);
    }
    OnDevice(const OnDevice &) = delete;
    OnDevice &operator=(const OnDevice &) = delete;

  private:
    int before_ = 0;
    bool restore_ = false;
};

// A stream for a few copies: the legacy stream would wait for all others. NULL where none could be
// made.
class OwnStream {
  public:
    OwnStream() {
        if (cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess)
            stream_ = nullptr;
    }
    ~OwnStream() {
        if (stream_ != nullptr)
            (void)cudaStreamDestroy(stream_);
    }
    OwnStream(const OwnStream &) = delete;
    OwnStream &operator=(const OwnStream &) = delete;

    cudaStream_t get() const {
        return stream_;
    }
    bool has_ended() const {
        return cudaStreamSynchronize(stream_) == cudaSuccess;
    }

  private:
    cudaStream_t stream_ = nullptr;
};

// Patterns first, then programs.
void lay_out(const tuccl_staging &staging, tuccl_device_comm *comm) {
    tuccl::Peers &peers = comm->peers;
    peers.ll_part = staging.part_bytes[TUCCL_LL];
    peers.ll_area = peers.ll_part * peers.ranks;
    peers.ll_phases = staging.phases[TUCCL_LL];
    peers.ll128_first = 2 * peers.ll_phases * peers.ll_area;
    peers.ll128_part = staging.part_bytes[TUCCL_LL128];
    peers.ll128_area = peers.ll128_part * peers.ranks;
    peers.ll128_phases = staging.phases[TUCCL_LL128];
    comm->staging = staging;
    comm->program_first = peers.ll128_first + size_t{2} * peers.ll128_phases * peers.ll128_area;
}

const char *allocate(tuccl_device_comm *comm, tuccl::MemoryHandle *handle) {
    void *counters = nullptr;
    void *abort_word = nullptr;
    const size_t wanted = comm->program_first + tuccl::program_area_bytes(comm->staging);
    const size_t staging_bytes = (wanted + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    tuccl::PeerMemory &memory = comm->memory[comm->peers.rank];
    if (const char *reason = memory.allocate(staging_bytes, comm->spans_hosts, handle))
        return reason;
    void *const staging = memory.address;
    comm->areas[comm->peers.rank] = static_cast<char *>(staging);
    if (cudaMalloc(&counters, tuccl::kCounterBytes) != cudaSuccess)
        return "there is no device memory for its counters";
    comm->peers.counters = static_cast<uint64_t *>(counters);
    if (cudaHostAlloc(&abort_word, sizeof(uint32_t), cudaHostAllocMapped | cudaHostAllocPortable) !=
        cudaSuccess)
        return "there is no pinned memory for its abort flag";
    comm->abort_word = static_cast<uint32_t *>(abort_word);
    *comm->abort_word = 0;
    void *seen = nullptr;
    if (cudaHostGetDevicePointer(&seen, abort_word, 0) != cudaSuccess)
        return "its abort flag is not visible to the device";
    comm->peers.abort = static_cast<const volatile uint32_t *>(seen);
    if (cudaEventCreateWithFlags(&comm->ordering, cudaEventDisableTiming) != cudaSuccess ||
        cudaEventCreateWithFlags(&comm->remembered, cudaEventDisableTiming) != cudaSuccess)
        return "no event could be made";
    const OwnStream stream;
    if (stream.get() == nullptr)
        return "no stream could be made";
    const bool cleared =
        cudaMemsetAsync(staging, 0, staging_bytes, stream.get()) == cudaSuccess &&
        cudaMemsetAsync(counters, 0, tuccl::kCounterBytes, stream.get()) == cudaSuccess &&
        stream.has_ended();
    return cleared ? nullptr : "its staging area could not be cleared";
}

const char *open_peer(tuccl_device_comm *comm, uint32_t rank, const Handle &handle) {
    if (comm->spans_hosts || handle.process != this_process()) {
        const size_t bytes = comm->memory[comm->peers.rank].bytes; // The same on all ranks.
        if (const char *reason = comm->memory[rank].open(handle.memory, bytes, comm->spans_hosts))
            return reason;
        comm->areas[rank] = static_cast<char *>(comm->memory[rank].address);
        return nullptr;
    }
    if (handle.device != comm->device) {
        const cudaError_t error = cudaDeviceEnablePeerAccess(handle.device, 0);
        if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled)
            return "memory of another device cannot be reached (no P2P)";
        (void)cudaGetLastError();
    }
    comm->areas[rank] = static_cast<char *>(handle.address);
    return nullptr;
}

bool all_have_ended(const tuccl_device_comm &comm, const tuccl::ProgramEnds &ends) {
    for (uint32_t rank = 0; rank < comm.peers.ranks; rank++)
        if ((comm.here >> rank & 1) == 0 && ends.finished[rank].value < ends.epoch)
            return false;
    return true;
}

// Returns whether every rank has ended as many launches of programs as this one: a rank's
// notification is its last write, unless this rank's last launch awaited all of its writes. Ranks
// of this process do not count: the caller waits for each of their devices.
bool others_have_ended(const tuccl_device_comm &comm) {
    constexpr auto kLongest = std::chrono::seconds(5);
    const OwnStream stream;
    const char *state = comm.areas[comm.peers.rank] + comm.program_first;
    const auto start = std::chrono::steady_clock::now();
    bool ended = false;
    while (stream.get() != nullptr && !ended &&
           std::chrono::steady_clock::now() - start < kLongest) {
        tuccl::ProgramEnds ends = {};
        // Memory that cannot be read, at the process's end or after a fault, has no writers.
        ended = *comm.abort_word != 0 ||
                cudaMemcpyAsync(&ends, state, sizeof ends, cudaMemcpyDeviceToHost, stream.get()) !=
                    cudaSuccess ||
                !stream.has_ended() || ends.is_silent != 0 || all_have_ended(comm, ends);
        if (!ended)
            std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    (void)cudaGetLastError();
    return ended;
}

tuccl::NvlinkEnds ends_of(int device) {
    char bus_id[32];
    if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device) != cudaSuccess)
        return {};
    return tuccl::nvlink_ends(bus_id);
}

// Equal on every rank, since all read the same handles.
bool nvlink_joins_all(const Handle *handles, uint32_t ranks) {
    for (uint32_t first = 0; first < ranks; first++)
        for (uint32_t second = 0; second < ranks; second++)
            if (!tuccl::nvlink_joins(handles[first].nvlink, handles[second].nvlink))
                return false;
    return true;
}

bool may_use_pcie() {
    const char *level = std::getenv("NCCL_P2P_LEVEL");
    return level == nullptr || strcasecmp(level, "NVL") != 0;
}

// A returned error must not show again in the job's cudaGetLastError.
const char *told(const char *reason) {
    (void)cudaGetLastError();
    return reason;
}

} // namespace

namespace tuccl {

const char *load_whole_launch(int device, const void *kernel) {
    int multiprocessors = 0;
    int blocks = 0;
    if (cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) !=
            cudaSuccess ||
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kMostProgramThreads, 0) !=
            cudaSuccess)
        return "its kernels are not for this device";
    return blocks * multiprocessors < static_cast<int>(kMostProgramBlocks)
               ? "its device is too small for programs"
               : nullptr;
}

const char *copy_to_device(const void *bytes, size_t count, void **copy) {
    const OwnStream stream;
    if (cudaMalloc(copy, count > 0 ? count : 1) != cudaSuccess || stream.get() == nullptr)
        return "there is no device memory for its programs";
    const bool is_copied =
        cudaMemcpyAsync(*copy, bytes, count, cudaMemcpyHostToDevice, stream.get()) == cudaSuccess &&
        stream.has_ended();
    return is_copied ? nullptr : "its programs could not be brought to the device";
}

} // namespace tuccl

const char *tuccl_device_comm_create(struct tuccl_device_comm **comm,
                                     struct tuccl_device_place place,
                                     const struct tuccl_staging *staging_wanted,
                                     unsigned char handle[TUCCL_HANDLE_BYTES]) {
    *comm = nullptr;
    if (place.ranks > TUCCL_MAX_RANKS || place.rank >= place.ranks)
        return "it has more ranks on a node than it serves";
    auto *made = new (std::nothrow) tuccl_device_comm{};
    if (made == nullptr)
        return "there is no memory";
    made->peers.rank = place.rank;
    made->peers.ranks = place.ranks;
    made->spans_hosts = place.spans_hosts;
    lay_out(*staging_wanted, made);
    if (cudaGetDevice(&made->device) != cudaSuccess) {
        delete made;
        return told("there is no current device");
    }
    Handle told_to_others = {};
    const char *reason = allocate(made, &told_to_others.memory);
    if (reason == nullptr && place.ranks > 1 && tuccl::load_patterns(place.ranks) != cudaSuccess)
        reason = "its kernels are not for this device";
    if (reason != nullptr) {
        tuccl_device_comm_destroy(made);
        return told(reason);
    }
    told_to_others.process = this_process();
    told_to_others.address = made->areas[place.rank];
    told_to_others.device = made->device;
    told_to_others.nvlink = ends_of(made->device);
    std::memset(handle, 0, TUCCL_HANDLE_BYTES);
    std::memcpy(handle, &told_to_others, sizeof told_to_others);
    *comm = made;
    return nullptr;
}

const char *tuccl_device_comm_connect(struct tuccl_device_comm *comm,
                                      const unsigned char (*handles)[TUCCL_HANDLE_BYTES]) {
    const OnDevice current(comm->device);
    Handle read[TUCCL_MAX_RANKS] = {};
    for (uint32_t rank = 0; rank < comm->peers.ranks; rank++)
        std::memcpy(&read[rank], handles[rank], sizeof read[rank]);
    comm->nvlink = nvlink_joins_all(read, comm->peers.ranks);
    if (!comm->nvlink && !may_use_pcie())
        return "NCCL_P2P_LEVEL is NVL, and NVLink does not join all of its devices";
    for (uint32_t rank = 0; rank < comm->peers.ranks; rank++) {
        comm->here |= read[rank].process == this_process() ? 1U << rank : 0;
        if (rank == comm->peers.rank)
            continue;
        if (const char *reason = open_peer(comm, rank, read[rank]))
            return told(reason);
    }
    return nullptr;
}

int tuccl_device_has_nvlink(const struct tuccl_device_comm *comm) {
    return comm->nvlink ? 1 : 0;
}

void tuccl_device_forgo_nvlink(struct tuccl_device_comm *comm) {
    comm->nvlink = false;
}

const char *tuccl_device_comm_load_programs(struct tuccl_device_comm *comm, const void *programs,
                                            size_t bytes) {
    const OnDevice current(comm->device);
    return tuccl::load_programs(comm, programs, bytes);
}

int tuccl_device_comm_quiesce(struct tuccl_device_comm *comm) {
    const tuccl::InDevice scope(comm->device);
    // Freeing waits for running kernels, and is allowed while another thread captures.
    (void)cudaFree(comm->peers.counters);
    comm->peers.counters = nullptr;
    // A pattern's kernel has received all messages when it ends. A program's or a stage's kernel
    // may end before its peers have notified it of their end.
    const bool is_notified = comm->programs.here != nullptr || comm->stage_steps != nullptr;
    return !is_notified || others_have_ended(*comm) ? 1 : 0;
}

void tuccl_device_comm_destroy(struct tuccl_device_comm *comm) {
    if (comm == nullptr)
        return;
    const tuccl::InDevice scope(comm->device);
    for (tuccl::PeerMemory &memory : comm->memory)
        memory.close();
    (void)cudaFree(comm->peers.counters);
    (void)cudaFree(comm->scratch);
    (void)cudaFree(comm->stage_steps);
    for (cudaStream_t stream : comm->side_streams)
        if (stream != nullptr)
            (void)cudaStreamDestroy(stream);
    for (cudaEvent_t mark : comm->marks)
        if (mark != nullptr)
            (void)cudaEventDestroy(mark);
    if (comm->abort_word != nullptr)
        (void)cudaFreeHost(comm->abort_word);
    for (cudaEvent_t event : {comm->ordering, comm->remembered})
        if (event != nullptr)
            (void)cudaEventDestroy(event);
    tuccl::free_programs(comm);
    delete comm;
}

int tuccl_device_supports(const struct tuccl_device_comm *comm, const struct tuccl_call *call) {
    return tuccl::pattern_supports(*comm, *call) || tuccl::program_supports(*comm, *call) ? 1 : 0;
}

int tuccl_device_launch(struct tuccl_device_comm *comm, const struct tuccl_call *call,
                        void *stream) {
    const OnDevice current(comm->device);
    if (!tuccl::pattern_supports(*comm, *call))
        return tuccl::launch_program(*comm, *call, static_cast<cudaStream_t>(stream));
    return tuccl::launch_pattern(*comm, *call, static_cast<cudaStream_t>(stream));
}

void tuccl_device_abort(struct tuccl_device_comm *comm) {
    __atomic_store_n(comm->abort_word, 1U, __ATOMIC_SEQ_CST);
}

int tuccl_device_order(struct tuccl_device_comm *comm, void *before, void *after) {
    const OnDevice current(comm->device);
    const cudaError_t error = cudaEventRecord(comm->ordering, static_cast<cudaStream_t>(before));
    if (error != cudaSuccess)
        return error;
    return cudaStreamWaitEvent(static_cast<cudaStream_t>(after), comm->ordering, 0);
}

int tuccl_device_remember(struct tuccl_device_comm *comm, void *before) {
    const OnDevice current(comm->device);
    return cudaEventRecord(comm->remembered, static_cast<cudaStream_t>(before));
}

int tuccl_device_order_remembered(struct tuccl_device_comm *comm, void *after) {
    const OnDevice current(comm->device);
    return cudaStreamWaitEvent(static_cast<cudaStream_t>(after), comm->remembered, 0);
}

const char *tuccl_device_prepare_phases(struct tuccl_device_comm *comm, size_t scratch_bytes,
                                        uint32_t streams) {
    const OnDevice current(comm->device);
    if (tuccl::load_sums() != cudaSuccess)
        return told("its kernels are not for this device");
    // Schedules in rounds may need none.
    if (cudaMalloc(&comm->scratch, scratch_bytes > 0 ? scratch_bytes : 1) != cudaSuccess)
        return told("there is no device memory for what lies between phases");
    for (uint32_t i = 0; i < streams; i++)
        if (cudaStreamCreateWithFlags(&comm->side_streams[i], cudaStreamNonBlocking) != cudaSuccess)
            return told("no stream could be made");
    for (cudaEvent_t &mark : comm->marks)
        if (cudaEventCreateWithFlags(&mark, cudaEventDisableTiming) != cudaSuccess)
            return told("no event could be made");
    return nullptr;
}

void *tuccl_device_scratch(const struct tuccl_device_comm *comm) {
    return comm->scratch;
}

void *tuccl_device_side_stream(const struct tuccl_device_comm *comm, uint32_t number) {
    return comm->side_streams[number];
}

int tuccl_device_mark(struct tuccl_device_comm *comm, uint32_t mark, void *stream) {
    const OnDevice current(comm->device);
    return cudaEventRecord(comm->marks[mark], static_cast<cudaStream_t>(stream));
}

int tuccl_device_await(struct tuccl_device_comm *comm, uint32_t mark, void *stream) {
    const OnDevice current(comm->device);
    return cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), comm->marks[mark], 0);
}

const char *tuccl_device_load_stages(struct tuccl_device_comm *comm,
                                     const struct tuccl_stage_step *steps, size_t count) {
    const OnDevice current(comm->device);
    const char *reason = tuccl::load_stages(comm, steps, count);
    return reason != nullptr ? told(reason) : nullptr;
}

int tuccl_device_run_stage(struct tuccl_device_comm *comm, const struct tuccl_stage_call *call,
                           void *stream) {
    const OnDevice current(comm->device);
    return tuccl::launch_stage(*comm, *call, static_cast<cudaStream_t>(stream));
}

int tuccl_device_sum(struct tuccl_device_comm *comm, const void *source, void *target, size_t count,
                     uint32_t summands, uint8_t type, uint8_t reduction, void *stream) {
    const OnDevice current(comm->device);
    return tuccl::launch_sum({static_cast<const char *>(source), static_cast<char *>(target),
                              count * tuccl::type_bytes(type), summands, reduction},
                             type, static_cast<cudaStream_t>(stream));
}
