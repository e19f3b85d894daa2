// Rules written by hand, for developers: the file that TUCCL_EXECUTOR_RULES names.
#ifndef TUCCL_EXECUTOR_RULES_FILE_H
#define TUCCL_EXECUTOR_RULES_FILE_H

#include "decision.h"

#include <string>

namespace tuccl {

// One rule a line: operation min_bytes max_bytes pattern protocol nchannels nthreads buffer_bytes;
// `#` starts a comment. Returns what is wrong, empty when nothing is.
std::string parse_rules(const std::string &text, Decision *decision);

} // namespace tuccl

#endif
