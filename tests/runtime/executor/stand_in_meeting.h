// Collectives among threads: ranks meet, read one another's buffers, and meet again.
#ifndef TUCCL_TEST_STAND_IN_MEETING_H
#define TUCCL_TEST_STAND_IN_MEETING_H

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

namespace stand_in {

// What one rank calls; operations by enum tuccl_operation.
struct Part {
    const void *send;
    void *receive;
    size_t count;
    int operation;
    int type;
    int reduction;
    int root;
    size_t stride = 0; // Bytes from block to block in the larger buffer; 0: they are adjacent.

    size_t pitch() const;
};

class Meeting {
  public:
    explicit Meeting(int ranks) : parts(static_cast<size_t>(ranks)) {
    }

    // False when it was aborted.
    bool meet() {
        std::unique_lock<std::mutex> lock(mutex_);
        const uint64_t mine = generation_;
        if (aborted_)
            return false;
        if (++arrived_ == parts.size()) {
            arrived_ = 0;
            generation_++;
            all_here_.notify_all();
            return true;
        }
        all_here_.wait(lock, [&] { return generation_ != mine || aborted_; });
        return generation_ != mine;
    }
    void abort() {
        const std::lock_guard<std::mutex> lock(mutex_);
        aborted_ = true;
        all_here_.notify_all();
    }

    bool is_aborted() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return aborted_;
    }

    void put(size_t rank, const Part &mine) {
        parts[rank] = mine;
    }
    std::vector<Part> all_parts() const {
        return parts;
    }

    std::vector<Part> parts; // By rank; written between meetings only.

  private:
    std::mutex mutex_;
    std::condition_variable all_here_;
    size_t arrived_ = 0;
    uint64_t generation_ = 0;
    bool aborted_ = false;
};

inline size_t bytes_of(int type) {
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return bytes[type];
}

inline size_t Part::pitch() const {
    return stride != 0 ? stride : count * bytes_of(type);
}

template <typename T>
void add_up(const std::vector<Part> &parts, size_t first, size_t count, T *result, int reduction) {
    for (size_t i = 0; i < count; i++) {
        T value = static_cast<const T *>(parts[0].send)[first + i];
        for (size_t rank = 1; rank < parts.size(); rank++) {
            const T other = static_cast<const T *>(parts[rank].send)[first + i];
            switch (reduction) {
            case 1:
                value = static_cast<T>(value * other);
                break;
            case 2:
                value = value > other ? value : other;
                break;
            case 3:
                value = value < other ? value : other;
                break;
            default:
                value = static_cast<T>(value + other);
            }
        }
        result[i] = reduction == 4 ? static_cast<T>(value / static_cast<T>(parts.size())) : value;
    }
}

// Of this block of each buffer.
inline void reduce(std::vector<Part> parts, size_t block, size_t count, void *result) {
    const size_t first = 0;
    for (Part &part : parts)
        part.send = static_cast<const unsigned char *>(part.send) + block * part.pitch();
    const int reduction = parts[0].reduction;
    switch (parts[0].type) {
    case 2:
        return add_up(parts, first, count, static_cast<int32_t *>(result), reduction);
    case 7:
        return add_up(parts, first, count, static_cast<float *>(result), reduction);
    default:
        return add_up(parts, first, count, static_cast<uint8_t *>(result), reduction);
    }
}

// Runs one collective; every rank of the meeting calls it with what it was called with.
template <typename Met> void run(Met *meeting, int rank, const Part &mine) {
    const auto index = static_cast<size_t>(rank);
    if (meeting->is_aborted())
        return;
    meeting->put(index, mine);
    if (!meeting->meet())
        return;
    const std::vector<Part> parts = meeting->all_parts();
    for (const Part &part : parts)
        if (part.operation != mine.operation || part.count != mine.count ||
            part.type != mine.type || part.root != mine.root) {
            std::fprintf(stderr, "ranks called different collectives\n");
            std::abort();
        }
    const size_t block = mine.count * bytes_of(mine.type);
    std::vector<unsigned char> result;
    const auto append = [&](const void *from, size_t bytes) {
        const auto *first = static_cast<const unsigned char *>(from);
        result.insert(result.end(), first, first + bytes);
    };
    switch (mine.operation) {
    case 0:
        append(parts[static_cast<size_t>(mine.root)].send, block);
        break;
    case 1:
        if (rank != mine.root)
            break;
        [[fallthrough]];
    case 4:
        result.resize(block);
        reduce(parts, 0, mine.count, result.data());
        break;
    case 2:
        for (const Part &part : parts)
            append(part.send, block);
        break;
    case 3:
        result.resize(block);
        reduce(parts, index, mine.count, result.data());
        break;
    default:
        for (const Part &part : parts)
            append(static_cast<const unsigned char *>(part.send) + index * block, block);
    }
    if (!meeting->meet() || result.empty())
        return;
    const size_t piece = mine.operation == 2 && mine.stride != 0 ? block : result.size();
    for (size_t at = 0; at < result.size(); at += piece)
        std::memcpy(static_cast<unsigned char *>(mine.receive) + at / piece * mine.stride,
                    result.data() + at, piece);
}

} // namespace stand_in

#endif
