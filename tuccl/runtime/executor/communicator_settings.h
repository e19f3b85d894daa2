// Variables of a table's process profile that a communicator can have by itself, in its
// configuration.
//
// The profile was measured on communicators of some shapes, and a process would have it on all.
// NCCL reads a configuration when a communicator starts, when no rank knows how the ranks lie on
// nodes. So NCCL starts a communicator as the job asks; its ranks meet, as for schedules, and where
// they find a shape that was measured they let NCCL start it once more, split from itself with the
// table's settings, and end the first. All ranks decide by the same greetings, so either all do or
// none does. A job that says anything itself keeps what it says.
#ifndef TUCCL_EXECUTOR_COMMUNICATOR_SETTINGS_H
#define TUCCL_EXECUTOR_COMMUNICATOR_SETTINGS_H

#include "grid.h"
#include "nccl_abi.h"
#include "plan.h"

#include <string>
#include <vector>

namespace tuccl {

struct Setting {
    std::string variable;
    std::string value;
};

// Returns the table's settings for communicators of a grid.
std::vector<Setting> settings_of(const Table &table, const Grid &grid);

std::string describe(const std::vector<Setting> &settings);

// A configuration that outlives the job's call: the job's own, or NCCL's initializer.
class OwnedConfig {
  public:
    // `given` may be NULL.
    explicit OwnedConfig(const ncclConfig *given);

    bool blocks() const;
    // Returns whether it has the field of a variable, or one that bounds the same.
    bool says(const std::string &variable) const;
    // Sets the field of a variable. Returns false if an NCCL of this version has none, or refuses
    // the value.
    bool set(const Setting &setting, int nccl_version);

    // Valid as long as this object is.
    ncclConfig *for_nccl() {
        return reinterpret_cast<ncclConfig *>(bytes_.data());
    }

  private:
    NcclConfigStart *start() {
        return reinterpret_cast<NcclConfigStart *>(bytes_.data());
    }
    const NcclConfigStart *start() const {
        return reinterpret_cast<const NcclConfigStart *>(bytes_.data());
    }

    std::vector<unsigned char> bytes_; // At least NcclConfigStart.
};

// Returns why this process's job keeps what it says of the table's settings, empty if it says
// nothing. `config` is its communicator's.
std::string said_by_job(const Table &table, const OwnedConfig &config);

// Returns whether the environment of this process has them all.
bool are_in_environment(const std::vector<Setting> &settings);

// Returns whether NCCL takes each setting in a configuration, and can make a communicator again.
// What it refuses is never handed to it: NCCL frees the flag then by which an abort of the first
// communicator would reach the second, and still writes to it (2.18 to 2.30, src/init.cc).
bool nccl_takes(const std::vector<Setting> &settings);

// Starts a communicator once more with the settings. Sets `made`; returns ncclResult_t.
int start_again(ncclComm_t comm, int rank, const std::vector<Setting> &settings,
                const OwnedConfig &config, ncclComm_t *made);

} // namespace tuccl

#endif
