// Files that other processes find whole: made under another name, and renamed; texts in them.
#ifndef TUCCL_EXECUTOR_WHOLE_FILE_H
#define TUCCL_EXECUTOR_WHOLE_FILE_H

#include <string>

namespace tuccl {

// Makes a file that everybody may read and that may not exist yet. `folder`: an open one, or
// AT_FDCWD. Returns -1 and sets errno if it cannot.
int make_file(int folder, const std::string &name);

// Writes the text to a file of make_file and renames it from `made` to `name`. If it cannot, it
// removes the file. The file stays open. Returns why not; empty if it did.
std::string put_in_place(int file, int folder, const std::string &made, const std::string &name,
                         const std::string &text);

// A text of JSON in its quotes; `?` for what is not printable ASCII.
std::string quoted(const std::string &text);

// "STEP failed: REASON", by errno's number.
std::string failed_step(const char *step, int error);

} // namespace tuccl

#endif
