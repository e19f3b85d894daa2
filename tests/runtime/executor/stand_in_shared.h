// Collectives among processes that were forked from one: what they share lies at the same address
// in all of them. Who forks calls Shared::of_host() before.
#ifndef TUCCL_TEST_STAND_IN_SHARED_H
#define TUCCL_TEST_STAND_IN_SHARED_H

#include "stand_in_meeting.h"

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <linux/futex.h>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace stand_in {

inline void doze() {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

// Memory that is never freed.
class Shared {
  public:
    static Shared &of_host() {
        static Shared *const shared = map();
        return *shared;
    }

    template <typename Made, typename... Arguments> Made *make(Arguments &&...arguments) {
        constexpr size_t kAlignment = 64;
        const size_t bytes = (sizeof(Made) + kAlignment - 1) / kAlignment * kAlignment;
        const size_t at = used_.fetch_add(bytes);
        if (at + bytes > kBytes)
            stop("the memory that processes share is used up");
        return new (reinterpret_cast<unsigned char *>(this) + at)
            Made(std::forward<Arguments>(arguments)...);
    }

    // The one of this name, made by who asks first.
    template <typename Made, typename... Arguments>
    Made *named(const std::string &name, Arguments &&...arguments) {
        while (locked_.test_and_set())
            doze();
        size_t i = 0;
        while (i < names_count_ && name != names_[i].text)
            i++;
        if (i == names_count_) {
            if (i == names_.size() || name.size() >= sizeof names_[i].text)
                stop("no place for one more name");
            name.copy(names_[i].text, name.size());
            names_[i].made = make<Made>(std::forward<Arguments>(arguments)...);
            names_count_++;
        }
        auto *made = static_cast<Made *>(names_[i].made);
        locked_.clear();
        return made;
    }

  private:
    static constexpr size_t kBytes = size_t{1} << 34;
    struct Name {
        char text[128];
        void *made;
    };

    static Shared *map() {
        void *memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            stop("there is no memory to share");
        return new (memory) Shared;
    }
    [[noreturn]] static void stop(const char *why) {
        std::fprintf(stderr, "%s\n", why);
        std::abort();
    }

    std::atomic<size_t> used_{(sizeof(Shared) + 4095) / 4096 * 4096};
    std::atomic_flag locked_ = ATOMIC_FLAG_INIT;
    size_t names_count_ = 0;
    std::array<Name, 8192> names_; // Untouched memory is zero, and takes no room.
};

// Bytes that a rank sends.
#ifndef STAND_IN_MOST_BYTES
#define STAND_IN_MOST_BYTES 2048
#endif

// A Meeting of ranks with small buffers.
class SharedMeeting {
  public:
    static constexpr size_t kMostRanks = 32;

    explicit SharedMeeting(int ranks) : ranks_(static_cast<size_t>(ranks)) {
    }

    bool meet() {
        const uint32_t mine = generation_.load();
        if (aborted_.load())
            return false;
        if (arrived_.fetch_add(1) + 1 == ranks_) {
            arrived_.store(0);
            generation_.fetch_add(1);
            wake();
            return true;
        }
        while (generation_.load() == mine && !aborted_.load())
            sleep(mine);
        return generation_.load() != mine;
    }
    void abort() {
        aborted_.store(true);
        wake();
    }
    bool is_aborted() const {
        return aborted_.load();
    }

    // Copies what the rank sends, block after block: others cannot read this process's memory.
    void put(size_t rank, const Part &mine) {
        const size_t blocks = mine.operation == 3 || mine.operation == 5 ? ranks_ : 1;
        const size_t bytes = mine.count * bytes_of(mine.type);
        if (bytes * blocks > sent_[rank].size()) {
            std::fprintf(stderr, "%zu bytes are too many for the memory of a meeting\n", bytes);
            std::abort();
        }
        const size_t pitch = mine.operation == 3 ? mine.pitch() : bytes;
        for (size_t block = 0; block < blocks; block++)
            std::memcpy(sent_[rank].data() + block * bytes,
                        static_cast<const unsigned char *>(mine.send) + block * pitch, bytes);
        parts[rank] = mine;
        parts[rank].send = sent_[rank].data();
        parts[rank].stride = 0;
    }
    std::vector<Part> all_parts() const {
        return {parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(ranks_)};
    }

    std::array<Part, kMostRanks> parts = {};

  private:
    // An abort between the look and the sleep costs the limit.
    void sleep(uint32_t mine) {
        const timespec limit = {0, 2'000'000};
        (void)syscall(SYS_futex, &generation_, FUTEX_WAIT, mine, &limit, nullptr, 0);
    }
    void wake() {
        (void)syscall(SYS_futex, &generation_, FUTEX_WAKE, ranks_, nullptr, nullptr, 0);
    }

    const size_t ranks_;
    std::atomic<size_t> arrived_{0};
    std::atomic<uint32_t> generation_{0};
    std::atomic<bool> aborted_{false};
    alignas(64) std::array<std::array<unsigned char, STAND_IN_MOST_BYTES>, kMostRanks> sent_;
};

// Messages from one rank to another, in their order: bytes behind their number.
class Mailbox {
  public:
    Mailbox() {
    }
    // False when `stops()` became true.
    template <typename Stops> bool put(const void *message, uint64_t bytes, const Stops &stops) {
        return write(&bytes, sizeof bytes, stops) && write(message, bytes, stops);
    }
    template <typename Stops> bool take(void *message, uint64_t bytes, const Stops &stops) {
        uint64_t sent = 0;
        if (!read(&sent, sizeof sent, stops))
            return false;
        if (sent != bytes) {
            std::fprintf(stderr, "a message of %zu bytes is received as %zu\n", size_t{sent},
                         size_t{bytes});
            std::abort();
        }
        return read(message, bytes, stops);
    }

  private:
    template <typename Stops> bool write(const void *from, uint64_t bytes, const Stops &stops) {
        for (uint64_t i = 0; i < bytes; i++) {
            const uint64_t at = written_.load();
            while (at - read_.load() == held_.size()) {
                if (stops())
                    return false;
                doze();
            }
            held_[at % held_.size()] = static_cast<const unsigned char *>(from)[i];
            written_.store(at + 1);
        }
        return true;
    }
    template <typename Stops> bool read(void *to, uint64_t bytes, const Stops &stops) {
        for (uint64_t i = 0; i < bytes; i++) {
            const uint64_t at = read_.load();
            while (written_.load() == at) {
                if (stops())
                    return false;
                doze();
            }
            static_cast<unsigned char *>(to)[i] = held_[at % held_.size()];
            read_.store(at + 1);
        }
        return true;
    }

    std::atomic<uint64_t> written_{0};
    std::atomic<uint64_t> read_{0};
    std::array<unsigned char, size_t{1} << 18> held_; // Untouched memory takes no room.
};

} // namespace stand_in

#endif
