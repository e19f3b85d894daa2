/* Reads a file into private read-only memory. */
#ifndef TUCCL_BUNDLE_FILE_H
#define TUCCL_BUNDLE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Opens the regular file at `path` and sets `*bytes` to its size. Returns the descriptor, or -1
 * with the reason in `why`, also for an empty file or one above `most_bytes`. Reads nothing, so
 * that a wrong file costs nothing. */
int tuccl_open_file(const char *path, size_t most_bytes, size_t *bytes, char *why,
                    size_t why_bytes);

/* Reads the first bytes of the file; false with the reason in `why`. */
bool tuccl_read_start(int file, void *start, size_t bytes, char *why, size_t why_bytes);

/* Returns the first `bytes` in private read-only pages, NULL with the reason in `why`. Free with
 * munmap. */
const unsigned char *tuccl_read_pages(int file, size_t bytes, char *why, size_t why_bytes);

#endif
