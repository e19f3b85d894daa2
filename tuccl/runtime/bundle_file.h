/* Reading a file into memory that nobody can change afterwards. */
#ifndef TUCCL_BUNDLE_FILE_H
#define TUCCL_BUNDLE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Opens the regular file at `path`, whose size is told in `*bytes`. The descriptor, or -1 with the
 * reason in `why`: also where it is empty, or has more than `most_bytes`. Nothing is read, so that
 * a wrong file of any kind and size costs nothing. */
int tuccl_open_file(const char *path, size_t most_bytes, size_t *bytes, char *why,
                    size_t why_bytes);

/* Its first bytes; false with the reason in `why`. */
bool tuccl_read_start(int file, void *start, size_t bytes, char *why, size_t why_bytes);

/* So many bytes from its start, in private read-only pages; NULL with the reason in `why`. Free
 * with munmap. */
const unsigned char *tuccl_read_pages(int file, size_t bytes, char *why, size_t why_bytes);

#endif
