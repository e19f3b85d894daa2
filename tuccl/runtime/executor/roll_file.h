// A communicator's roll in the host's shared memory: a file with a slot for each rank, which the
// rank locks as long as it takes part.
//
// The file is read and written, never mapped. Where there is no room, or where somebody truncated
// it, a call returns an error; a mapping would end the process with SIGBUS. A lock ends with the
// process that holds it, in whichever container, so that the dead are told from the living.
#ifndef TUCCL_EXECUTOR_ROLL_FILE_H
#define TUCCL_EXECUTOR_ROLL_FILE_H

#include <cstdint>
#include <map>
#include <string>

namespace tuccl {

struct RollEntry {
    uint64_t attempt; // A random number of this start of this rank.
    uint64_t mark;
};

using RollEntries = std::map<uint32_t, RollEntry>; // By rank.

class RollFile {
  public:
    // `tag` is in every entry: what is not of this roll is no entry.
    RollFile(const std::string &name, uint64_t tag);
    ~RollFile(); // Ends in success what was not ended otherwise.
    RollFile(const RollFile &) = delete;
    RollFile &operator=(const RollFile &) = delete;

    // Empty, or why this rank cannot be entered; then nothing of it is left.
    std::string enter(uint32_t rank, const RollEntry &mine);
    bool is_open() const {
        return file_ >= 0;
    }

    // Those who take part, and those who have ended.
    RollEntries read() const;
    // Whether a rank has taken its entry back, has ended in failure, or died before it ended.
    bool has_left(uint32_t rank, const RollEntry &entry) const;

    // Nobody needs the name any more; who has the file open keeps it.
    void remove_name();
    // As if this rank had never entered. The last rank to go removes the file.
    void take_back();
    // The entry stays for those who still read.
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
