// Processes that disturb a job by what they do in /dev/shm. They run until they are killed.
#ifndef TUCCL_TEST_SHM_NEIGHBOURS_H
#define TUCCL_TEST_SHM_NEIGHBOURS_H

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

// Names in /dev/shm.
std::vector<std::string> shm_names();
// Whether this is a roll that the executor made for this user, and nobody changed what it is.
bool is_sound_roll(const std::string &name, uid_t owner);

// Takes all of /dev/shm's room but so many pages and all of its inodes but so many; -1: takes none
// of them.
void fill_shm(int free_pages, int free_inodes);
// Removes all but sound rolls of this user.
void clean_shm(uid_t owner);

// Becomes a user, for good.
void become(uid_t user);

[[noreturn]] void change_what_is_there(uint64_t seed); // Truncates, replaces, guesses names.
[[noreturn]] void fill_again_and_again(uint64_t seed);

#endif
