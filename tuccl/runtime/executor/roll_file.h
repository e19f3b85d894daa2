// A communicator's roll in the host's shared memory: a file with a slot for each rank, which the
// rank locks while it takes part.
//
// The file is read and written, never mapped. Without space, or after a truncation, a call returns
// an error, where a mapping would end the process with SIGBUS. A lock ends with its process, in any
// container, so that dead processes are recognised.
#ifndef TUCCL_EXECUTOR_ROLL_FILE_H
#define TUCCL_EXECUTOR_ROLL_FILE_H

#include <cstdint>
#include <map>
#include <string>

namespace tuccl {

struct RollEntry {
    uint64_t attempt; // Random number of this rank's start.
    uint64_t mark;
};

using RollEntries = std::map<uint32_t, RollEntry>; // By rank.

class RollFile {
  public:
    // `tag` is in every entry: entries of other rolls are ignored.
    RollFile(const std::string &name, uint64_t tag);
    ~RollFile(); // Ends in success unless ended before.
    RollFile(const RollFile &) = delete;
    RollFile &operator=(const RollFile &) = delete;

    // Enters this rank. Returns an empty text, or the reason of a failure, which leaves no entry.
    std::string enter(uint32_t rank, const RollEntry &mine);
    bool is_open() const {
        return file_ >= 0;
    }

    // Returns the entries of active ranks and of those that have ended.
    RollEntries read() const;
    // Returns whether a rank has withdrawn its entry, ended in failure, or died before it ended.
    bool has_left(uint32_t rank, const RollEntry &entry) const;

    // Removes the file's name; processes that have the file open keep it.
    void remove_name();
    // Withdraws this rank's entry. The last rank to leave removes the file.
    void take_back();
    // Ends this rank's part; the entry stays for ranks that still read.
    enum class End : uint64_t { kNone, kSuccess, kFailure };
    void end(End how);

  private:
    struct Slot;

    enum class Opened { kYes, kAgain, kNo };
    Opened open_file(std::string *fault);
    bool examine(bool created, Opened *opened, std::string *fault);
    bool lock(short kind, uint32_t slot) const;
    bool read_slot(uint32_t rank, Slot *slot) const;
    bool is_alive(uint32_t rank, const Slot &slot) const;
    void close_file();

    std::string path_;
    uint64_t tag_;
    uint32_t rank_ = 0;
    int file_ = -1;
    bool entered_ = false;
};

} // namespace tuccl

#endif
