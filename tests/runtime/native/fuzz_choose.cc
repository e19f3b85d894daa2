// Mutated entries, chosen as a search does it: fuzz_choose BUNDLE COUNT SEED
//
// BUNDLE has the schedules, and one entry to begin with. What tuccl_executor_choose takes must be
// exactly what a bundle with that entry is loaded with, and whatever it takes must make rules whose
// schedules are there and whose staging memory is no more than the most. Crashes and undefined
// behaviour are for the sanitizers to find.
#include "check.h"
#include "choose.h"
#include "plan.h"
#include "staging_need.h"

extern "C" {
#include "bundle.h"
#include "crc32.h"
#include "program.h"
}

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr size_t kMostBytes = 2 * sizeof(tuccl_entry_record);

// A few fields of it are other ones, or at some border.
void mutate(unsigned char *record, uint64_t *state) {
    static constexpr uint64_t kTelling[] = {
        0, 1, 2, 3, 64, 65, 255, 1024, 1025, UINT32_MAX - 1, UINT32_MAX, UINT64_MAX};
    for (size_t left = random_below(state, 4); left > 0; left--) {
        const size_t width = size_t{1} << random_below(state, 4);
        const size_t at = random_below(state, sizeof(tuccl_entry_record) / width) * width;
        const uint64_t value = random_below(state, 2) != 0
                                   ? kTelling[random_below(state, std::size(kTelling))]
                                   : random_number(state);
        std::memcpy(record + at, &value, width);
    }
}

// A file that holds a bundle whose only entry is changed, and its sum with it.
class BundleFile {
  public:
    explicit BundleFile(const char *path) : file_(memfd_create("bundle", MFD_CLOEXEC)) {
        std::ifstream stream(path, std::ios::binary);
        data_.assign(std::istreambuf_iterator<char>(stream), {});
        CHECK(file_ >= 0);
        const auto bundle = load();
        CHECK(bundle != nullptr && bundle->entry_count == 1);
        const auto *entries = reinterpret_cast<const unsigned char *>(bundle->entries);
        entry_at_ = static_cast<size_t>(entries - bundle->data);
    }

    std::shared_ptr<const tuccl_bundle> load() const {
        CHECK(pwrite(file_, data_.data(), data_.size(), 0) == static_cast<ssize_t>(data_.size()));
        auto *bundle = new tuccl_bundle;
        char why[200];
        const std::string path = "/proc/self/fd/" + std::to_string(file_);
        if (tuccl_bundle_load(path.c_str(), bundle, why, sizeof why) != TUCCL_BUNDLE_GOOD) {
            delete bundle;
            return nullptr;
        }
        return std::shared_ptr<tuccl_bundle>(bundle, [](tuccl_bundle *loaded) {
            tuccl_bundle_free(loaded);
            delete loaded;
        });
    }

    void set_entry(const void *entry) {
        auto *bytes = reinterpret_cast<unsigned char *>(data_.data());
        std::memcpy(bytes + entry_at_, entry, sizeof(tuccl_entry_record));
        const size_t field = offsetof(tuccl_bundle_header, crc);
        const uint32_t crc = tuccl_crc32_around(bytes, data_.size(), field);
        std::memcpy(bytes + field, &crc, sizeof crc);
    }

  private:
    int file_;
    std::vector<char> data_;
    size_t entry_at_ = 0;
};

// Rules of the entry that is in force, for communicators of every size.
size_t check_rules(const tuccl_bundle &bundle) {
    size_t rules = 0;
    for (uint32_t ranks = 2; ranks <= TUCCL_MAX_RANKS; ranks++) {
        const tuccl::Grid grid = {1, ranks, 0, 0};
        for (uint32_t operation = 0; operation < tuccl::kOperations; operation++) {
            tuccl::Rule rule = {};
            tuccl_program program;
            if (!tuccl::make_rule(*tuccl::chosen_entry(), bundle.programs, operation, grid, &rule))
                continue;
            CHECK(tuccl_programs_at(bundle.programs, rule.program, &program));
            CHECK(program.header->ranks == ranks && program.header->operation == operation);
            CHECK(rule.protocol <= TUCCL_SIMPLE && rule.min_bytes <= rule.max_bytes);
            tuccl::Decision decision;
            CHECK(decision.add(operation, rule));
            const tuccl_staging need = tuccl::staging_need(decision, bundle.programs, grid);
            CHECK(tuccl::staging_bytes(need, ranks) <=
                  tuccl::staging_bytes(tuccl::most_staging(ranks), ranks));
            rules++;
        }
    }
    CHECK(rules <= 1);
    return rules;
}

} // namespace

int main(int count, char **arguments) {
    CHECK(count == 4);
    BundleFile file(arguments[1]);
    const auto bundle = file.load();
    char why[200];
    CHECK(tuccl_programs_check(bundle->programs, bundle->program_bytes, why, sizeof why));
    const long times = std::strtol(arguments[2], nullptr, 10);
    uint64_t state = std::strtoull(arguments[3], nullptr, 10);
    size_t taken = 0;
    size_t rules = 0;
    for (long i = 0; i < times; i++) {
        unsigned char record[kMostBytes] = {};
        std::memcpy(record, bundle->entries, sizeof *bundle->entries);
        mutate(record, &state);
        const bool whole = random_below(&state, 8) != 0;
        const size_t bytes = whole ? sizeof *bundle->entries : random_below(&state, kMostBytes + 1);
        // In memory of its own, so that reading behind it is seen.
        auto *given = static_cast<unsigned char *>(std::malloc(bytes + 1));
        std::memcpy(given, record, bytes);
        const char *wrong = tuccl::choose(given, bytes);
        std::free(given);
        CHECK((wrong == nullptr) == (tuccl::chosen_entry() != nullptr));
        if (bytes != sizeof *bundle->entries) {
            CHECK(wrong != nullptr);
            continue;
        }
        file.set_entry(record);
        CHECK((wrong == nullptr) == (file.load() != nullptr));
        if (wrong == nullptr) {
            taken++;
            rules += check_rules(*bundle);
        }
    }
    std::printf("%ld entries, %zu taken, %zu rules\n", times, taken, rules);
    return 0;
}
