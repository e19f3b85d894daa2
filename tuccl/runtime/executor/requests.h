// Requests to the tuner plugin (tuccl/runtime/request.h).
#ifndef TUCCL_EXECUTOR_REQUESTS_H
#define TUCCL_EXECUTOR_REQUESTS_H

#include "../request.h"
#include "program_layout.h"

#include <cstdint>
#include <vector>

namespace tuccl {

// A request for a rail of so many nodes, which is never freed: a plugin may hold it.
tuccl_request *new_rail_request(uint32_t nodes);
// The same for one of the job's communicators. `learns`: as in the request.
tuccl_request *new_table_request(bool learns);

// Until it is withdrawn, the plugin of a communicator that NCCL creates can take the request. Every
// start has an offer, of NULL if it has no request. While there is another offer in this process,
// for a communicator of another thread or group, a plugin cannot know whose request it would take:
// then there is none to take, and neither is obeyed. (No lock is held: the ranks of two
// communicators could take it in different orders, and wait for each other inside NCCL.)
class Offer {
  public:
    explicit Offer(tuccl_request *request);
    ~Offer() {
        withdraw();
    }
    Offer(const Offer &) = delete;
    Offer &operator=(const Offer &) = delete;

    void withdraw();
    tuccl_request *request() const {
        return request_;
    }

  private:
    tuccl_request *request_;
    bool is_withdrawn_ = false; // Under the mutex of all offers.
};

// Returns whether exactly so many communicators obey the request.
bool is_obeyed(const tuccl_request &request, uint32_t communicators);

// Has these calls of the job's communicator run by their words, and all others as the table says.
// `request` may be NULL.
void leave_out(tuccl_request *request, std::vector<tuccl_left_out> ranges);

// Requests the configuration of a phase for the calls during its life.
class RailRequested {
  public:
    // `request` may be NULL.
    RailRequested(tuccl_request *request, const tuccl_phase &phase);
    ~RailRequested();
    RailRequested(const RailRequested &) = delete;
    RailRequested &operator=(const RailRequested &) = delete;

  private:
    tuccl_request *request_;
};

// Requests another choice than the table's for the calls of a job's communicator during its life.
class ChoiceRequested {
  public:
    // `request` may be NULL.
    ChoiceRequested(tuccl_request *request, uint64_t word);
    ~ChoiceRequested();
    ChoiceRequested(const ChoiceRequested &) = delete;
    ChoiceRequested &operator=(const ChoiceRequested &) = delete;

  private:
    tuccl_request *request_;
};

// Calls that NCCL did not run as requested so far. `request` may be NULL.
uint32_t refused_calls(const tuccl_request *request);

// Notes that the job calls NCCL for a communicator through the executor.
void note_call();

} // namespace tuccl

extern "C" tuccl_request *tuccl_executor_request();
extern "C" bool tuccl_executor_is_called();

#endif
