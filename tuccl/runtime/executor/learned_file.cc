#include "learned_file.h"

#include "executor.h"
#include "log.h"
#include "singleton.h"
#include "whole_file.h"

extern "C" {
#include "../request.h"
#include "tuner_abi.h"
}

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <unistd.h>
#include <utility>

namespace tuccl {

namespace {

constexpr int kFileVersion = 2;
constexpr const char *kDefaultName = "tuccl-learned.%h.%p.json";
// More than a job has of a process: the oldest give way.
constexpr size_t kMostEnded = 64;

constexpr const char *kAlgorithms[] = {
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
constexpr const char *kProtocols[] = {"LL", "LL128", "Simple"};

struct All {
    std::mutex mutex;
    std::map<const void *, Learned> alive;
    std::vector<LearnedCommunicator> ended;
    bool has_handler = false;
};

std::string number(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.6g", value);
    return text;
}

std::string arm_text(const LearnedArm &arm) {
    const uint32_t algorithm = arm.word & 0xFF;
    std::string text = "{\"is\": ";
    if (arm.schedule)
        text += "\"schedule\", \"schedule\": " + quoted(arm.schedule->content_hash) +
                ", \"name\": " + quoted(arm.schedule->name) + ", \"protocol\": \"" +
                kProtocols[arm.schedule->protocol] +
                "\", \"nchannels\": " + std::to_string(arm.schedule->nchannels) +
                ", \"nthreads\": " + std::to_string(arm.schedule->nthreads) +
                ", \"buffer_bytes\": " + std::to_string(arm.schedule->buffer_bytes);
    else if (algorithm == TUCCL_REQUEST_NCCL)
        text += "\"nccl\"";
    else if (algorithm == TUCCL_REQUEST_ENTRY)
        text += "\"table\"";
    else
        text += std::string("\"setting\", \"algorithm\": \"") + kAlgorithms[algorithm] +
                "\", \"protocol\": \"" + kProtocols[arm.word >> 8 & 0xFF] +
                "\", \"nchannels\": " + std::to_string(arm.word >> 16 & 0xFF) +
                ", \"chunk_bytes\": " +
                std::to_string(arm.word >> 24 != 0 ? 1ULL << (arm.word >> 24) : 0);
    text += ", \"time_us\": " + (arm.us > 0.0F ? number(static_cast<double>(arm.us)) : "null");
    return text + ", \"refused\": " + (arm.is_refused ? "true" : "false") + "}";
}

std::string key_text(const LearnedKey &key) {
    std::string text = std::string("{\"operation\": \"") + tuccl_call_name(key.operation) +
                       "\", \"bytes\": " + std::to_string(key.bytes) +
                       ", \"calls\": " + std::to_string(key.calls) +
                       ", \"races\": " + std::to_string(key.races) +
                       ", \"choice\": " + std::to_string(key.choice) + ", \"arms\": [";
    for (size_t i = 0; i < key.arms.size(); i++)
        text += (i > 0 ? ",\n          " : "\n          ") + arm_text(key.arms[i]);
    return text + "]}";
}

std::string communicator_text(const LearnedCommunicator &each) {
    std::string text = "{\"ranks\": " + std::to_string(each.shape.ranks) +
                       ", \"nodes\": " + std::to_string(each.shape.nodes) +
                       ", \"ranks_per_node\": " + std::to_string(each.shape.ranks_per_node) +
                       ", \"calls\": " + std::to_string(each.calls) +
                       ", \"reports\": " + std::to_string(each.reports) +
                       ", \"slower_us\": " + number(each.slower_us) +
                       ", \"elapsed_us\": " + std::to_string(each.elapsed_us) + ", \"keys\": [";
    for (size_t i = 0; i < each.keys.size(); i++)
        text += (i > 0 ? ",\n        " : "\n        ") + key_text(each.keys[i]);
    return text + "]}";
}

std::string now() {
    const std::time_t time = std::time(nullptr);
    std::tm parts = {};
    char text[40] = "";
    if (gmtime_r(&time, &parts) != nullptr)
        (void)std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S+00:00", &parts);
    return text;
}

// Returns why not; empty if it did.
std::string write_file(const std::string &name, const std::string &text) {
    const std::string made = name + "." + std::to_string(getpid()) + ".part";
    (void)unlink(made.c_str());
    const int file = make_file(AT_FDCWD, made);
    if (file < 0)
        return failed_step("making a file", errno);
    std::string fault = put_in_place(file, AT_FDCWD, made, name, text);
    (void)close(file);
    return fault;
}

// Under the mutex.
void write(All *all) {
    std::vector<LearnedCommunicator> found = all->ended;
    for (const auto &[communicator, learned] : all->alive)
        if (auto each = learned())
            found.push_back(std::move(*each));
    found.erase(std::remove_if(found.begin(), found.end(),
                               [](const LearnedCommunicator &each) { return each.keys.empty(); }),
                found.end());
    if (found.empty())
        return;
    const char *wanted = std::getenv("TUCCL_LEARN_FILE");
    const std::string pattern = wanted != nullptr && wanted[0] != '\0' ? wanted : kDefaultName;
    const std::string host = host_name();
    const std::string name = learned_file_name(pattern, host, getpid());
    const std::string fault = write_file(name, learned_text(found, host, getpid(), now()));
    if (!fault.empty())
        log_warning(
            "what was learned cannot be written to %s: %s; TUCCL_LEARN_FILE names another file",
            name.c_str(), fault.c_str());
}

} // namespace

std::string describe(const LearnedArm &arm) {
    const uint32_t word = arm.word;
    const uint32_t algorithm = word & 0xFF;
    if (arm.schedule)
        return arm.schedule->name + " " + kProtocols[arm.schedule->protocol] + " ch" +
               std::to_string(arm.schedule->nchannels) + " th" +
               std::to_string(arm.schedule->nthreads);
    if (algorithm == TUCCL_REQUEST_NCCL)
        return "NCCL's own choice";
    if (algorithm == TUCCL_REQUEST_ENTRY)
        return "the table's setting";
    std::string text = std::string(kAlgorithms[algorithm]) + "/" + kProtocols[word >> 8 & 0xFF];
    if ((word >> 16 & 0xFF) != 0)
        text += " on " + std::to_string(word >> 16 & 0xFF) + " channels";
    if (word >> 24 != 0)
        text += " in chunks of " + std::to_string(1ULL << (word >> 24)) + " bytes";
    return text;
}

std::string learned_file_name(const std::string &pattern, const std::string &host, long process) {
    std::string name;
    for (size_t i = 0; i < pattern.size(); i++) {
        const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
        if (next == 'h')
            name += host;
        else if (next == 'p')
            name += std::to_string(process);
        else {
            name += pattern[i];
            continue;
        }
        i++;
    }
    return name;
}

std::string learned_text(const std::vector<LearnedCommunicator> &all, const std::string &host,
                         long process, const std::string &written_at) {
    std::string text = "{\n  \"tuccl_learned\": " + std::to_string(kFileVersion) +
                       ",\n  \"host\": " + quoted(host) +
                       ",\n  \"process\": " + std::to_string(process) +
                       ",\n  \"written_at\": " + quoted(written_at) + ",\n  \"communicators\": [";
    for (size_t i = 0; i < all.size(); i++)
        text += (i > 0 ? ",\n    " : "\n    ") + communicator_text(all[i]);
    return text + "]\n}\n";
}

void begin_learning(const void *communicator, Learned learned) {
    All &all = singleton<All>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.alive[communicator] = std::move(learned);
    if (!all.has_handler)
        std::atexit([] {
            All &at_end = singleton<All>();
            const std::unique_lock<std::mutex> own(at_end.mutex, std::try_to_lock);
            if (own && !at_end.alive.empty())
                write(&at_end);
        });
    all.has_handler = true;
}

void end_learning(const void *communicator, LearnedCommunicator learned) {
    All &all = singleton<All>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.alive.erase(communicator);
    if (all.ended.size() == kMostEnded)
        all.ended.erase(all.ended.begin());
    all.ended.push_back(std::move(learned));
    write(&all);
}

} // namespace tuccl
