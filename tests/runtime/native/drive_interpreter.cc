// Programs run on host threads under a sanitizer: every protocol, in and out of place, with sizes
// that do not divide, launches that follow one another without a pause, numbers that pass 2^32, and
// an abort in between. Results are compared with the operation's definition.
//
//   drive_interpreter PROGRAM...
#include "executor.h"
#include "expected.h"
#include "program.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

struct host_node;
extern "C" {
host_node *host_node_create(uint32_t ranks, uint64_t base);
void host_node_destroy(host_node *node);
void host_node_abort(host_node *node);
uint64_t host_node_base(const host_node *node, uint32_t rank);
const char *host_node_run(host_node *node, const void *data, size_t bytes, const tuccl_call *call,
                          const void *const *send, void *const *receive, uint32_t first,
                          uint32_t end, uint32_t times);
}

namespace {

using Elements = std::vector<int32_t>;
using Program = std::vector<uint64_t>;

[[noreturn]] void fail(const char *file, const char *what) {
    std::fprintf(stderr, "%s: %s\n", file, what);
    std::exit(1);
}

Program read(const char *path, size_t *bytes) {
    std::FILE *file = std::fopen(path, "rb");
    if (file == nullptr)
        fail(path, "cannot be opened");
    Program words(1 << 16);
    *bytes = std::fread(words.data(), 1, words.size() * 8, file);
    std::fclose(file);
    return words;
}

struct Case {
    const char *path;
    const void *data;
    size_t bytes;
    const tuccl_program_header &header;
    tuccl_call call;
    bool in_place;

    // In place the sums of a second launch would be of sums: such calls run once.
    void run(host_node *node) const {
        const uint32_t ranks = header.ranks;
        const auto [sent, received] = tuccl_tests::elements_of(call, ranks);
        std::vector<Elements> large(ranks, Elements(std::max(sent, received)));
        std::vector<Elements> apart(ranks, Elements(sent));
        const void *send[TUCCL_MAX_RANKS] = {};
        void *receive[TUCCL_MAX_RANKS] = {};
        for (uint32_t rank = 0; rank < ranks; rank++) {
            int32_t *input = apart[rank].data();
            int32_t *output = large[rank].data();
            if (in_place && tuccl_input_is_part(header.operation)) {
                input = output + rank * call.count;
            } else if (in_place) {
                input = output;
                if (tuccl_output_is_part(header.operation))
                    output += rank * call.count;
            }
            for (size_t i = 0; i < sent; i++)
                input[i] = tuccl_tests::value_at(call, ranks, rank, i);
            send[rank] = input;
            receive[rank] = output;
        }
        const char *said =
            host_node_run(node, data, bytes, &call, send, receive, 0, ranks, in_place ? 1 : 2);
        if (said != nullptr)
            fail(path, said);
        for (uint32_t rank = 0; rank < ranks; rank++) {
            if ((tuccl_flow(header.operation) & TUCCL_TO_ROOT) != 0 && rank != header.root)
                continue;
            for (size_t i = 0; i < received; i++)
                if (static_cast<const int32_t *>(receive[rank])[i] !=
                    tuccl_tests::expected_at(call, ranks, rank, i))
                    fail(path, "gives a wrong result");
        }
    }

    // One rank never comes: the others wait until they are told to stop.
    void abandon() const {
        host_node *node = host_node_create(header.ranks, 0);
        std::vector<Elements> buffers(2 * header.ranks, Elements(call.count * header.ranks));
        const void *send[TUCCL_MAX_RANKS] = {};
        void *receive[TUCCL_MAX_RANKS] = {};
        for (uint32_t rank = 0; rank < header.ranks; rank++) {
            send[rank] = buffers[2 * rank].data();
            receive[rank] = buffers[2 * rank + 1].data();
        }
        std::thread others(
            [&] { host_node_run(node, data, bytes, &call, send, receive, 1, header.ranks, 3); });
        host_node_abort(node);
        others.join();
        host_node_destroy(node);
    }
};

} // namespace

int main(int count_of_arguments, char **arguments) {
    long runs = 0;
    for (int i = 1; i < count_of_arguments; i++) {
        size_t bytes = 0;
        const Program words = read(arguments[i], &bytes);
        tuccl_program program;
        char why[128];
        if (!tuccl_program_check(words.data(), bytes, &program, why, sizeof why))
            fail(arguments[i], why);
        host_node *node = host_node_create(program.header->ranks, (uint64_t{1} << 32) - 20);
        Case one = {arguments[i], words.data(), bytes, *program.header, {}, false};
        one.call.operation = program.header->operation;
        one.call.root = program.header->root;
        one.call.type = TUCCL_INT32;
        for (const uint8_t protocol : {TUCCL_LL, TUCCL_SIMPLE})
            for (const size_t count : {129, 1500})
                for (const uint16_t threads : {1, 2}) {
                    one.call.protocol = protocol;
                    one.call.count = count;
                    one.call.nchannels = static_cast<uint16_t>(count % 2 + 1);
                    one.call.nthreads = static_cast<uint16_t>(32 * threads);
                    one.call.buffer_bytes = uint64_t{1} << 15; // Several tiles, and credits.
                    one.in_place =
                        (program.header->flags & TUCCL_PROGRAM_RUNS_IN_PLACE) != 0 && threads == 1;
                    one.run(node);
                    runs++;
                }
        for (uint32_t rank = 1; rank < program.header->ranks; rank++)
            if (host_node_base(node, rank) != host_node_base(node, 0))
                fail(arguments[i], "leaves ranks with different numbers");
        host_node_destroy(node);
#ifndef __SANITIZE_THREAD__ // After an abort nothing is ordered any more.
        one.abandon();
#endif
    }
    std::printf("%ld calls right\n", runs);
    return 0;
}
