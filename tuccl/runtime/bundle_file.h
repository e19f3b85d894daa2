/* Reading a file whole into memory that nobody can change afterwards. */
#ifndef TUCCL_BUNDLE_FILE_H
#define TUCCL_BUNDLE_FILE_H

#include <stddef.h>

/* The contents of the regular file at `path` in private read-only pages, NULL with the reason in
 * `why` when it cannot be read. `*bytes` is its size. Free with munmap. */
const unsigned char *tuccl_read_file(const char *path, size_t *bytes, char *why, size_t why_bytes);

#endif
