// The file of what a job learned (TUCCL_LEARN_FILE): written by the process of each communicator's
// rank 0 when the communicator ends, and when the process does. docs/reference/executor.md has its
// form.
#ifndef TUCCL_EXECUTOR_LEARNED_FILE_H
#define TUCCL_EXECUTOR_LEARNED_FILE_H

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tuccl {

struct LearnedShape {
    uint32_t ranks;
    uint32_t nodes;
    uint32_t ranks_per_node; // 0 if nodes differ.
};

// A schedule with what a call of it takes.
struct LearnedSchedule {
    std::string content_hash;
    std::string name;
    uint32_t protocol; // As in bundles.
    uint32_t nchannels;
    uint32_t nthreads;
    uint64_t buffer_bytes;
};

struct LearnedArm {
    std::optional<LearnedSchedule> schedule; // Which the executor runs; nothing if NCCL runs.
    uint32_t word;                           // Of NCCL's request.
    float us;                                // Median of its last trial; 0: it was not timed.
    bool is_refused;
};

struct LearnedKey {
    uint32_t operation;
    uint64_t bytes;
    uint64_t calls;
    uint32_t races;
    uint32_t choice; // Of its arms; arm 0 is what the table says.
    std::vector<LearnedArm> arms;
};

struct LearnedCommunicator {
    LearnedShape shape;
    uint64_t calls;
    uint64_t reports;
    double slower_us;
    uint64_t elapsed_us;
    std::vector<LearnedKey> keys;
};

// What an arm is, in a few words.
std::string describe(const LearnedArm &arm);

// From the beginning to the end of a communicator's life, `learned` says what it has learned so far
// for the file that is written when the process ends.
using Learned = std::function<std::optional<LearnedCommunicator>()>;
void begin_learning(const void *communicator, Learned learned);
// Writes the file, too.
void end_learning(const void *communicator, LearnedCommunicator learned);

// The name of the file of a process: `pattern` with %h for the host's name and %p for the process's
// number.
std::string learned_file_name(const std::string &pattern, const std::string &host, long process);

// The file's text.
std::string learned_text(const std::vector<LearnedCommunicator> &all, const std::string &host,
                         long process, const std::string &written_at);

} // namespace tuccl

#endif
