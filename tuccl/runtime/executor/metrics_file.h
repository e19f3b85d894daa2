// A process's file of metrics, which other processes of this host replace and remove theirs beside.
#ifndef TUCCL_EXECUTOR_METRICS_FILE_H
#define TUCCL_EXECUTOR_METRICS_FILE_H

#include <string>

namespace tuccl {

// Replaces `tuccl-PROCESS.prom` in a folder. The first time it also removes what this user's dead
// processes left there 5 minutes ago or more, when their last figures have been read. `file`: the
// open file, which holds the lock by which others know that this process lives; -1 before the
// first. Returns why not; empty if it did.
std::string replace_metrics(const std::string &folder, const std::string &process,
                            const std::string &text, int *file);

} // namespace tuccl

#endif
